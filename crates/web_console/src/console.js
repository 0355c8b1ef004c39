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

const main = document.querySelector("main[data-live]");
if (main) {
  const state = document.createElement("p");
  state.className = "stale";
  state.setAttribute("role", "status");
  state.hidden = true;
  main.before(state);
  setInterval(async () => {
    if (isBusy(main)) {
      return;
    }
    try {
      await renew(main);
      state.hidden = true;
    } catch (error) {
      state.textContent = `weft does not answer (${error.message}): what stands here is old`;
      state.hidden = false;
    }
  }, EVERY_MS);
}
