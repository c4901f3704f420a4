// Whether people who see, hear or type otherwise can use the pages: axe-core's rules, in both colour schemes and on
// the width of a desk and of a phone.

import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { accessFindings, chromium, launch, makePage, makeRunPage, open, serve, storedRun, workFolder } from "./browser.mjs";

const executable = chromium();
describe("the pages by axe", { skip: executable === null && "no Chromium (apt-get install chromium)" }, () => {
  let work;
  let browser;
  let server;
  const addresses = {};

  before(async () => {
    work = workFolder();
    addresses["of a proof"] = makePage(work.folder, "sample");
    addresses["of an experiment"] = makeRunPage(work.folder, "lab-1");
    addresses["of an experiment over sizes and time"] = makeRunPage(work.folder, "lab-3");
    cpSync(storedRun("lab-1"), join(work.folder, "state/runs/lab-1"), { recursive: true });
    server = await serve(join(work.folder, "state"));
    addresses["of all runs"] = server.address;
    browser = await launch(executable);
  });

  after(async () => {
    await browser?.close();
    await server?.end();
    work?.remove();
  });

  for (const name of ["of a proof", "of an experiment", "of an experiment over sizes and time", "of all runs"]) {
    for (const colorScheme of ["light", "dark"]) {
      for (const width of [1280, 390]) {
        test(`nothing is found on the page ${name}, ${colorScheme}, ${width} px wide`, async () => {
          const { page } = await open(browser, addresses[name], { colorScheme, viewport: { width, height: 844 } });
          await page.evaluate(() => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
          assert.deepEqual(await accessFindings(page), []);
          await page.context().close();
        });
      }
    }
  }
});
