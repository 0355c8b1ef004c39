// The console in a browser: node pages.mjs BROWSER LOGIN_ADDRESS FOLDER TARGET
//
// Each page is shown wide and narrow, light and dark. Each is without fault to axe, no wider
// than the window, and asks nothing of any other server. FOLDER gets a picture of each. Then an
// administrator's day is gone through; TARGET is where hosts connect by NVMe/TCP.
import assert from "node:assert/strict";
import net from "node:net";
import path from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import { chromium } from "playwright-core";

const [browserPath, login, folder, target] = process.argv.slice(2);
const origin = new URL(login).origin;

const PAGES = [
  "/",
  "/volumes",
  "/nvme",
  "/iscsi",
  "/files",
  "/connections",
  "/connections/hosts",
  "/connections/sessions",
  "/connections/nfs-clients",
  "/connections/drain",
  "/refusals",
  "/configuration",
  "/configuration/change?change=add&kind=volume&step=form",
  "/configuration/change?change=add&kind=volume&step=plan&field.name=a&field.kind=round",
  "/configuration/change?change=set&kind=target&step=form&name=iqn.2026-01.org.example:interop",
  "/configuration/change?change=rm&kind=subsystem&name=nqn.2026-01.org.example:interop",
  "/history",
  "/history/1",
  "/listeners",
  "/nvme/objects?kind=subsystem%2Fnamespace&name=nqn.2026-01.org.example:interop",
  "/events",
  "/audit",
  "/performance",
  "/performance/volumes",
  "/performance/hosts",
  "/connect",
];

const LOOKS = [
  { width: 1280, colorScheme: "light" },
  { width: 1280, colorScheme: "dark" },
  { width: 360, colorScheme: "light" },
  { width: 360, colorScheme: "dark" },
];

const wrong = [];

// What a page says to the developer is a fault: a policy that it breaks, a script that fails.
function watch(page) {
  page.on("console", (message) => {
    // A change that cannot be made has a page that says so, and the status of a refusal.
    const isRefusal = /status of (409|422)/.test(message.text());
    if (["error", "warning"].includes(message.type()) && !isRefusal) {
      wrong.push(`${page.url()}: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => wrong.push(`${page.url()}: ${error}`));
  page.on("request", (request) => {
    const { protocol, origin: asked } = new URL(request.url());
    if (asked !== origin && protocol !== "data:") {
      wrong.push(`${page.url()} asks ${request.url()}`);
    }
  });
}

async function looksRight(page, where, { width, colorScheme }) {
  await page.goto(origin + where);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  if (wide > width) {
    wrong.push(`${where} is ${wide} wide in a window of ${width}`);
  }
  const found = await new AxeBuilder({ page }).withTags(["wcag2a", "wcag2aa", "wcag21aa"]).analyze();
  for (const { id, help, nodes } of found.violations) {
    wrong.push(`${where}, ${width}, ${colorScheme}: ${id}: ${help}: ${nodes[0].html}`);
  }
  const named = where.slice(1).replaceAll(/[^a-z0-9]+/gi, "-").slice(0, 80);
  const name = `${named || "overview"}-${width}-${colorScheme}.png`;
  await page.screenshot({ path: path.join(folder, name), fullPage: true });
}

async function isUsedByKeys(page) {
  await page.goto(`${origin}/connections`);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "content");
}

// The page is asked for again, and shows what is new, without being loaded anew.
async function isLive(page) {
  await page.goto(`${origin}/`);
  await page.evaluate(() => {
    document.querySelector("main h1").textContent = "old";
  });
  await page.waitForFunction(() => document.querySelector("main h1").textContent === "Overview");
}

async function isSortedAndFiltered(page) {
  await page.setViewportSize({ width: 360, height: 800 });
  await page.goto(`${origin}/history`);
  await page.getByLabel("Ordered by").selectOption("time");
  await page.getByRole("button", { name: "Show" }).click();
  assert.equal(await page.locator("th[aria-sort]").textContent(), "time ↑");
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto(`${origin}/history`);
  await page.getByRole("link", { name: "generation" }).click();
  const head = page.locator("th[aria-sort]");
  assert.equal(await head.getAttribute("aria-sort"), "descending");
  await page.getByRole("searchbox").fill("no line has this");
  await page.getByRole("button", { name: "Show" }).click();
  assert.equal(await page.locator("tbody tr").count(), 0);
}

const served = (page) => page.waitForURL(/\/history\/\d+$/);

async function serve(page) {
  await page.getByRole("button", { name: "Serve it" }).click();
  await served(page);
}

// Adds a volume by keys alone: each step is reached by Tab and taken by Enter or Space.
async function addsVolumeByKeys(page, name) {
  const reach = async (selector) => {
    const isReached = () =>
      page.evaluate((wanted) => document.activeElement.matches(wanted), selector);
    for (let n = 0; !(await isReached()); n += 1) {
      assert(n < 100, `${selector} is not reached by Tab`);
      await page.keyboard.press("Tab");
    }
  };
  await page.goto(`${origin}/volumes`);
  await reach("main .actions a");
  await page.keyboard.press("Enter");
  await page.waitForURL(/step=form/);
  await reach('[name="field.name"]');
  await page.keyboard.type(name);
  await reach('[name="field.kind"]');
  await page.keyboard.type("ram");
  await reach('[name="field.size"]');
  await page.keyboard.type("8MiB");
  await reach('button[value="plan"]');
  await page.keyboard.press("Enter");
  await page.waitForSelector(".difference");
  await reach('button[value="serve"]');
  await page.keyboard.press("Enter");
  await served(page);
}

async function addsNamespace(page) {
  await page.goto(`${origin}/nvme`);
  const name = "Add namespace… to nqn.2026-01.org.example:interop";
  await page.getByRole("link", { name }).click();
  await page.getByLabel("nsid").fill("2");
  await page.getByLabel("volume", { exact: true }).fill("noon");
  await page.getByRole("button", { name: "Show what changes" }).click();
  await page.screenshot({ path: path.join(folder, "story-plan.png"), fullPage: true });
  await serve(page);
}

async function growsVolume(page) {
  await page.goto(`${origin}/volumes`);
  await page.getByRole("link", { name: "Change… noon" }).click();
  assert.equal(await page.getByLabel("size").inputValue(), "8MiB");
  await page.getByLabel("size").fill("16MiB");
  await page.getByRole("button", { name: "Show what changes" }).click();
  assert.match(await page.locator("ins").textContent(), /16MiB/);
  assert.equal(await page.locator(".disturbs").count(), 0);
  await serve(page);
}

async function letsRefusedHostIn(page) {
  await page.goto(`${origin}/refusals`);
  await page.getByRole("link", { name: /^Let it in/ }).first().click();
  assert.match(await page.locator("ins").first().textContent(), /nqn\./);
  await page.screenshot({ path: path.join(folder, "story-let-in.png"), fullPage: true });
  await serve(page);
  await page.goto(`${origin}/refusals`);
  assert.equal(await page.getByRole("link", { name: /^Let it in/ }).count(), 0);
}

// What cuts hosts is served with its tick alone; the tick is set by a key.
async function removesNamespace(page) {
  await page.goto(`${origin}/nvme`);
  await page.getByRole("link", { name: "Remove… 2", exact: true }).click();
  const tick = page.getByRole("checkbox");
  if (await tick.count()) {
    await page.getByRole("button", { name: "Serve it" }).click();
    assert.match(page.url(), /change=rm/);
    await tick.focus();
    await page.keyboard.press("Space");
  }
  await serve(page);
}

async function evicts(page) {
  const [host, port] = target.split(":");
  const socket = net.connect(Number(port), host);
  await new Promise((connected) => socket.once("connect", connected));
  const closed = new Promise((done) => socket.once("close", done));
  socket.on("error", () => {});
  socket.resume();
  await page.goto(`${origin}/connections?filter=${socket.localPort}`);
  await page.getByRole("link", { name: "Evict…" }).click();
  await page.screenshot({ path: path.join(folder, "story-evict.png"), fullPage: true });
  await page.getByRole("button", { name: "Evict" }).click();
  assert.match(await page.locator("h1").textContent(), /^Evicted: connection/);
  await closed;
}

// What was typed is there still where it has a mistake, and where others came before.
async function keepsWhatWasTyped(page, other) {
  await page.goto(`${origin}/configuration`);
  const text = page.getByRole("textbox", { name: "The configuration" });
  const before = await text.inputValue();
  await text.fill(`# <script>alert(1)</script>\nvolumee = 1\n${before}`);
  await page.getByRole("button", { name: "Show what changes" }).click();
  await page.getByRole("link", { name: "Line 2, column 1" }).click();
  const marked = await page.evaluate(() => document.activeElement.selectionStart);
  assert.equal(marked, "# <script>alert(1)</script>\n".length);
  await page.screenshot({ path: path.join(folder, "story-mistake.png"), fullPage: true });
  await text.fill(`# Night shift\n${before}`);
  await addsVolumeByKeys(other, "night");
  await page.getByRole("button", { name: "Show what changes" }).click();
  assert.equal(await page.locator(".problem h2").textContent(), "another generation is served");
  assert((await page.locator("del").allTextContents()).some((line) => /night/.test(line)));
  await page.screenshot({ path: path.join(folder, "story-conflict.png"), fullPage: true });
  await page.getByRole("button", { name: "Change it further" }).click();
  assert((await text.inputValue()).startsWith("# Night shift\n"));
}

// weft connects to itself as a client does, and says how that went.
async function testsFromHere(page) {
  await page.goto(`${origin}/connect`);
  await page.getByRole("button", { name: "Test from here" }).click();
  assert.match(await page.locator("#tested + p").textContent(), /^Passed/);
  const found = await new AxeBuilder({ page }).withTags(["wcag2a", "wcag2aa", "wcag21aa"]).analyze();
  assert.deepEqual(found.violations, []);
}

async function rollsBack(page) {
  await page.goto(`${origin}/history`);
  await page.getByRole("link", { name: "Show 1", exact: true }).click();
  await page.getByRole("link", { name: "Serve it again…" }).click();
  const tick = page.getByRole("checkbox");
  if (await tick.count()) {
    await tick.check();
  }
  await serve(page);
  await page.goto(`${origin}/volumes`);
  assert.equal(await page.getByRole("heading", { name: "noon" }).count(), 0);
}

// What happens is on the page without its being loaded anew.
async function followsEvents(page, other) {
  await page.goto(`${origin}/events?kind=changed`);
  const count = await page.locator("tbody tr").count();
  await addsVolumeByKeys(other, "noon");
  await page.waitForFunction(
    (before) => document.querySelectorAll("tbody tr").length > before,
    count,
  );
}

const browser = await chromium.launch({
  executablePath: browserPath,
  // The superuser's browser has no sandbox of its own.
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});
try {
  const context = await browser.newContext();
  const page = await context.newPage();
  watch(page);
  await page.goto(login);
  assert.equal(page.url(), `${origin}/`);
  for (const look of LOOKS) {
    await page.setViewportSize({ width: look.width, height: 800 });
    await page.emulateMedia({ colorScheme: look.colorScheme });
    for (const where of PAGES) {
      await looksRight(page, where, look);
    }
  }
  await isUsedByKeys(page);
  await isLive(page);
  await isSortedAndFiltered(page);
  await testsFromHere(page);
  const other = await context.newPage();
  watch(other);
  await addsVolumeByKeys(page, "noon");
  await addsNamespace(page);
  await growsVolume(page);
  await letsRefusedHostIn(page);
  await removesNamespace(page);
  await evicts(page);
  await keepsWhatWasTyped(page, other);
  await rollsBack(page);
  await followsEvents(page, other);
  // What stands in a page is there without a script, too.
  const plain = await browser.newContext({
    javaScriptEnabled: false,
    storageState: await context.storageState(),
  });
  const still = await plain.newPage();
  await still.goto(`${origin}/connections?filter=x`);
  assert.equal(await still.locator("h1").textContent(), "Connections");
  await growsVolume(still);
  assert.deepEqual(wrong, []);
  console.log(`pages: ${PAGES.length}, looks: ${LOOKS.length}`);
} finally {
  await browser.close();
}
