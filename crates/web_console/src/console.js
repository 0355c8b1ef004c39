// Asks again for what a live page shows, and puts it in the place of what it showed.
"use strict";

const EVERY_MS = 3000;

const isBusy = (main) =>
  document.hidden || main.contains(document.activeElement) || !getSelection().isCollapsed;

async function renew(main) {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (answer.redirected || answer.status === 401) {
    location.reload();
    return;
  }
  if (!answer.ok) {
    throw new Error(`status ${answer.status}`);
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const renewed = page.querySelector("main[data-live]");
  // Whoever has begun to use the page meanwhile keeps what is there.
  if (renewed && !isBusy(main)) {
    main.replaceChildren(...renewed.childNodes);
  }
}

// Tells of what comes on a stream of events, until that ends.
async function follow(address, onEvent) {
  const answer = await fetch(address, { headers: { accept: "text/event-stream" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    if (part.value.includes("data:")) {
      onEvent();
    }
  }
}

// A mistake's place is marked in the text.
for (const link of document.querySelectorAll("a[data-line]")) {
  link.addEventListener("click", (event) => {
    const field = document.querySelector("#text");
    const before = field.value.split("\n").slice(0, link.dataset.line - 1);
    const start = before.reduce((sum, line) => sum + line.length + 1, 0);
    event.preventDefault();
    field.focus();
    const at = start + Number(link.dataset.column);
    field.setSelectionRange(at - 1, at);
  });
}

const main = document.querySelector("main[data-live]");
if (main) {
  let isNew = !main.dataset.live;
  if (main.dataset.live) {
    follow(main.dataset.live, () => {
      isNew = true;
    }).catch(() => {}).finally(() => {
      // Without the stream it is asked for as other pages are.
      main.dataset.live = "";
    });
  }
  const state = document.createElement("p");
  state.className = "stale";
  state.setAttribute("role", "status");
  state.hidden = true;
  main.before(state);
  setInterval(async () => {
    if (isBusy(main) || !(isNew || main.dataset.live === "")) {
      return;
    }
    try {
      isNew = false;
      await renew(main);
      state.hidden = true;
    } catch (error) {
      state.textContent = `weft does not answer (${error.message}): what stands here is old`;
      state.hidden = false;
    }
  }, EVERY_MS);
}
