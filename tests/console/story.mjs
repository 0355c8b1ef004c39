// One thing that an operator does in the console: node story.mjs BROWSER LOGIN_ADDRESS DEED
//
// DEED is an object of JSON: `verb`, and `kind`, `name` and `fields` where it needs them. What
// would be cut is read from the page that shows it, then it is done. Prints both as JSON.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [browserPath, login, deed] = process.argv.slice(2);
const origin = new URL(login).origin;
const { verb, kind, name, fields } = JSON.parse(deed);

// The page that has the objects of a kind, and what it calls them.
const KINDS = {
  volume: ["/volumes", "volume"],
  subsystem: ["/nvme", "subsystem"],
  listener: ["/listeners", "listener"],
  portal_group: ["/iscsi", "portal group"],
};

const exact = true;
const press = (page, button) => page.getByRole("button", { name: button, exact }).click();
const follow = (page, link) => page.getByRole("link", { name: link, exact }).click();

async function fill(page) {
  const more = page.getByText("More settings", { exact });
  if (await more.count()) {
    await more.click();
  }
  const named = kind === "subsystem" ? "nqn" : kind === "listener" ? "address" : "name";
  const all = verb === "add" ? { [named]: name, ...fields } : fields;
  for (const [key, value] of Object.entries(all)) {
    const field = page.getByLabel(key, { exact });
    const tag = await field.evaluate((element) => element.tagName);
    const text = value === null ? "" : Array.isArray(value) ? value.join("\n") : String(value);
    await (tag === "SELECT" ? field.selectOption(text) : field.fill(text));
  }
  await press(page, "Show what changes");
}

// From the pages that lead there to the one that shows what the deed does.
const WAYS = {
  async add(page) {
    const [path, title] = KINDS[kind];
    await page.goto(origin + path);
    await follow(page, `Add ${title}…`);
    await fill(page);
  },
  async set(page) {
    await page.goto(origin + KINDS[kind][0]);
    await follow(page, `Change… ${name}`);
    await fill(page);
  },
  async rm(page) {
    await page.goto(origin + KINDS[kind][0]);
    await follow(page, `Remove… ${name}`);
  },
  async rollback(page) {
    await page.goto(`${origin}/history`);
    await follow(page, `Show ${name}`);
    await follow(page, "Serve it again…");
  },
  async evict(page) {
    await page.goto(`${origin}/connections/hosts?filter=${encodeURIComponent(name)}`);
    await follow(page, "Evict…");
  },
  async drain(page) {
    await page.goto(`${origin}/connections`);
    await follow(page, "Drain");
  },
};
WAYS["end-drain"] = WAYS.drain;

const BUTTONS = { evict: "Evict", drain: "Drain", "end-drain": "Let hosts in again" };

const lines = async (page, selector) => {
  const texts = await page.locator(selector).allTextContents();
  return texts.map((text) => text.replace(/^Disturbs: /, ""));
};

const browser = await chromium.launch({
  executablePath: browserPath,
  // The superuser's browser has no sandbox of its own.
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});
try {
  const page = await browser.newPage();
  await page.goto(login);
  await WAYS[verb](page);
  const cuts = await lines(page, ".plan .disturbs");
  const button = BUTTONS[verb] ?? "Serve it";
  if (cuts.length) {
    // Not without leave.
    const before = page.url();
    await press(page, button);
    assert.equal(page.url(), before);
    await page.getByRole("checkbox").check();
  }
  await press(page, button);
  await (verb in BUTTONS ? page.waitForSelector(".plan") : page.waitForURL(/\/history\/\d+$/));
  console.log(JSON.stringify({ cuts, done: await lines(page, ".plan li") }));
} finally {
  await browser.close();
}
