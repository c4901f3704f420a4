// `linerate report --serve` in a real browser: a run that grows while somebody looks, until it is over.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { appendFileSync, cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { accessFindings, chromium, launch, open, serve, storedRun, workFolder } from "./browser.mjs";

const executable = chromium();

describe("the served pages", { skip: executable === null && "no Chromium (apt-get install chromium)" }, () => {
  let work;
  let browser;
  let server;
  let growing;

  before(async () => {
    work = workFolder();
    cpSync(storedRun("lab-1"), join(work.folder, "runs/old"), { recursive: true });
    growing = join(work.folder, "runs/growing");
    mkdirSync(growing);
    writeFileSync(join(growing, "run.json"), readFileSync(join(storedRun("lab-1"), "run.json")));
    server = await serve(work.folder);
    browser = await launch(executable);
  });

  after(async () => {
    await browser?.close();
    await server?.end();
    work?.remove();
  });

  test("show a run that grows as it grows, and its report when it is over, with no reload by hand", async () => {
    const records = join(growing, "records.jsonl");
    const lines = readFileSync(join(storedRun("lab-1"), "records.jsonl"), "utf8").split(/(?<=\n)/);
    const trials = (upto) => lines.slice(0, upto).filter((line) => line.includes('{"cell"')).length;
    writeFileSync(records, lines.slice(0, 4).join(""));
    // Holds the lock that a linerate holds which writes.
    const writer = spawn("flock", ["--exclusive", records, "cat"], { stdio: ["pipe", "pipe", "inherit"] });
    const locked = once(writer.stdout, "data");
    writer.stdin.write("held\n");
    await locked;

    const list = await open(browser, server.address);
    const own = new URL(server.address).origin;
    assert.equal(await list.page.getByRole("link", { name: "growing" }).count(), 1);
    await list.page.getByText(`${trials(4)} of 12 trials`).waitFor();
    const { page, complaints, requests } = await open(browser, `${server.address}runs/growing`);
    assert.ok(await page.getByRole("progressbar").isVisible());
    const means = page.getByRole("table", { name: /^All combinations so far/ });
    await page.getByRole("searchbox", { name: /All combinations so far/ }).fill("on");
    const chosen = await means.locator("tbody tr:visible").count();
    await page.evaluate(() => { window.notReloaded = true; });

    for (let upto = 5; upto < lines.length; upto += 3) {
      appendFileSync(records, lines.slice(upto - 1, upto + 2).join(""));
      const made = trials(upto + 2);
      await page.getByText(`${made} of 12 trials`).waitFor();
      await list.page.getByText(`${made} of 12 trials`).waitFor();
      assert.equal(await page.getByRole("progressbar").evaluate((bar) => bar.value), made);
      assert.equal(await means.locator("tbody tr:visible").count(), chosen, "the filter holds");
    }
    assert.equal(await page.evaluate(() => window.notReloaded), true);
    assert.deepEqual([await accessFindings(page), await accessFindings(list.page)], [[], []]);

    writer.stdin.end();
    await once(writer, "exit");
    await page.getByText("All 12 trials").waitFor();
    await list.page.getByText("No run in progress.").waitFor();
    assert.deepEqual([...complaints, ...list.complaints], []);
    assert.ok([...requests, ...list.requests].every((url) => url.startsWith(own)), "nobody else was asked");
    await page.context().close();
    await list.page.context().close();
  });

  test("lead from the list to a run and say what they know without JavaScript", async () => {
    const { page, complaints } = await open(browser, server.address, { javaScriptEnabled: false });
    await page.getByRole("link", { name: "old", exact: true }).click();
    assert.match(await page.locator("h1").innerText(), /Segmentation/);
    assert.deepEqual(complaints, []);
    await page.context().close();
  });

  test("say that they are no longer fresh when the server is gone", async () => {
    const other = await serve(work.folder);
    const { page } = await open(browser, other.address);
    await other.end();
    await page.getByText("The server does not respond").waitFor();
    await page.context().close();
  });
});
