// The console in a browser: node pages.mjs BROWSER LOGIN_ADDRESS FOLDER
//
// Each page is shown wide and narrow, light and dark. Each is without fault to axe, no wider
// than the window, and asks nothing of any other server. FOLDER gets a picture of each.
import assert from "node:assert/strict";
import path from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import { chromium } from "playwright-core";

const [browserPath, login, folder] = process.argv.slice(2);
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
  "/refusals",
  "/configuration",
  "/history",
  "/audit",
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
    if (["error", "warning"].includes(message.type())) {
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
  const name = `${where.slice(1).replaceAll("/", "-") || "overview"}-${width}-${colorScheme}.png`;
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
  // What stands in a page is there without a script, too.
  const plain = await browser.newContext({
    javaScriptEnabled: false,
    storageState: await context.storageState(),
  });
  const still = await plain.newPage();
  await still.goto(`${origin}/connections?filter=x`);
  assert.equal(await still.locator("h1").textContent(), "Connections");
  assert.deepEqual(wrong, []);
  console.log(`pages: ${PAGES.length}, looks: ${LOOKS.length}`);
} finally {
  await browser.close();
}
