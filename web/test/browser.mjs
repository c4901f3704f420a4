// What the browser tests stand on: the sample page, made by linerate itself, and a Chromium that may
// reach nothing. A test that cannot run here says so.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** The path of Chromium, or null after a visible skip. */
export function chromium() {
  const asked = process.env.CHROMIUM;
  const found = (asked ? [asked] : CHROMIUM).find((path) => existsSync(path));
  if (found === undefined) {
    console.error("SKIP: no Chromium; install it with `apt-get install chromium` or name it in CHROMIUM");
    return null;
  }
  return found;
}

/** Starts Chromium without a sandbox only where it refuses to have one: as root. */
export async function launch(executablePath) {
  const { chromium: driver } = await import("playwright-core");
  const args = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"];
  return driver.launch({ executablePath, args, chromiumSandbox: process.getuid?.() !== 0 });
}

/** How to start a program: as the environment names it (a test run names what it built), or else by building it first. */
function program(variable, ...target) {
  const built = process.env[variable];
  return built === undefined ? ["cargo", ["run", "--quiet", ...target, "--"]] : [built, []];
}

const [linerate, asLinerate] = program("LINERATE", "-p", "linerate");
const [reportPage, asReportPage] = program("LINERATE_REPORT_PAGE", "-p", "linerate-report", "--example", "report_page");

/** Makes the page of a fixture, given as text after `change` of the parsed data, and returns its address. */
export function makePage(folder, name, change = (data) => data) {
  const fixture = join(root, "fixtures/report/sample.json");
  const data = change(JSON.parse(readFileSync(fixture, "utf8")));
  const input = join(folder, `${name}.json`);
  writeFileSync(input, JSON.stringify(data));
  const page = execFileSync(
    reportPage, [...asReportPage, input],
    { cwd: root, maxBuffer: 64 << 20, stdio: ["ignore", "pipe", "inherit"] },
  );
  const path = join(folder, `${name}.html`);
  writeFileSync(path, page);
  return pathToFileURL(path).href;
}

/** A stored run in the repository. */
export function storedRun(run) {
  return join(root, "fixtures/runs", run);
}

/** Makes the page of a stored run in the repository, and returns its address. */
export function makeRunPage(folder, run) {
  const path = join(folder, `${run}.html`);
  execFileSync(
    linerate, [...asLinerate, "--quiet", "report", storedRun(run), "--out", path],
    { cwd: root, stdio: ["ignore", "ignore", "inherit"] },
  );
  return pathToFileURL(path).href;
}

/** Starts `linerate report --serve` over a state folder, and gives its address and what ends it. */
export async function serve(state) {
  const child = spawn(
    linerate, [...asLinerate, "--quiet", "--state", state, "report", "--serve"],
    { cwd: root, stdio: ["ignore", "pipe", "inherit"] },
  );
  const ended = once(child, "exit");
  for await (const line of createInterface({ input: child.stdout })) {
    const end = async () => {
      child.kill("SIGINT");
      await ended;
    };
    return { address: line.trim(), end };
  }
  throw new Error("the server ended before it told its address");
}

/** Saves what `act` makes the page save: its name and its bytes. */
export async function saved(page, act) {
  const [download] = await Promise.all([page.waitForEvent("download"), act()]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

/** What axe-core finds on a page, a line each. */
export async function accessFindings(page) {
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
  const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  if (passes.length < 15) {
    throw new Error(`only ${passes.length} of axe's rules had anything to look at`);
  }
  return violations.flatMap(({ id, impact, nodes }) => nodes.map((node) => `${impact} ${id}: ${node.target} ${node.failureSummary}`));
}

/** A folder of the test's own, and what takes it away again. */
export function workFolder() {
  const folder = mkdtempSync(join(tmpdir(), "linerate-report-"));
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Opens a page and records everything it says and asks for, until its charts are drawn. */
export async function open(browser, address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  const requests = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") {
      complaints.push(message.text());
    }
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(address);
  if (options.javaScriptEnabled !== false) {
    await page.waitForFunction(() => document.documentElement.dataset.charts === "done");
  }
  return { page, complaints, requests };
}
