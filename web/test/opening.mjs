// Prints how many seconds Chromium takes until a page stands with its charts drawn: the median of several times,
// each with an empty cache. What `bench/page` runs.
//
// usage: node test/opening.mjs PAGE [TIMES]

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium, launch, open } from "./browser.mjs";

const [file, times = "5"] = process.argv.slice(2);
const executable = chromium();
if (executable !== null) {
  const browser = await launch(executable);
  const address = pathToFileURL(resolve(file)).href;
  const seconds = [];
  try {
    for (let time = 0; time < Number(times); time += 1) {
      const begun = performance.now();
      const { page, complaints } = await open(browser, address);
      seconds.push((performance.now() - begun) / 1e3);
      if (complaints.length > 0) {
        throw new Error(complaints.join("\n"));
      }
      await page.context().close();
    }
  } finally {
    await browser.close();
  }
  seconds.sort((one, other) => one - other);
  console.log(seconds[Math.floor(seconds.length / 2)].toFixed(3));
}
