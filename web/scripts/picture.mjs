// Takes the picture of a page for the README and the book: what a person sees of it, charts drawn.
//
// usage: node scripts/picture.mjs PAGE.html PICTURE.png [FIRST [LAST]]   (FIRST, LAST: ids of headings; default: from
// the top to the end of the first part with a chart). WIDTH=400 and SCHEME=dark in the environment give other pictures.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium, launch, open } from "../test/browser.mjs";

const [page, picture, first, last] = process.argv.slice(2);
if (picture === undefined) {
  console.error("usage: node scripts/picture.mjs PAGE.html PICTURE.png [FIRST [LAST]]");
  process.exit(2);
}
const executable = chromium();
if (executable === null) {
  process.exit(1);
}
const browser = await launch(executable);
try {
  const shown = await open(browser, pathToFileURL(resolve(page)).href, {
    viewport: { width: Number(process.env.WIDTH ?? 1120), height: 900 },
    colorScheme: process.env.SCHEME === "dark" ? "dark" : "light",
    deviceScaleFactor: 1,
  });
  for (const complaint of shown.complaints) {
    console.error(complaint);
  }
  const clip = await shown.page.evaluate(([first, last]) => {
    const part = (id) => {
      const found = document.getElementById(id)?.closest("section");
      if (found === null || found === undefined) {
        throw new Error(`the page has no part "${id}"`);
      }
      return found;
    };
    const end = last ?? first;
    const foot = end === undefined
      ? document.querySelector("[data-chart]").closest("section")
      : part(end);
    const top = first === undefined ? 0 : part(first).getBoundingClientRect().top + scrollY - 12;
    const bottom = foot.getBoundingClientRect().bottom + scrollY + 12;
    return { x: 0, y: top, width: document.documentElement.clientWidth, height: bottom - top };
  }, [first, last]);
  await shown.page.screenshot({ path: picture, clip, fullPage: true });
} finally {
  await browser.close();
}
