// What a person does with the tables and pictures of a page: filters, saves, prints, and all of it by keyboard.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { chromium, launch, makePage, makeRunPage, open, saved, workFolder } from "./browser.mjs";

const executable = chromium();

/** A table of this name, and the bar before it with its controls. */
function tableOf(page, name) {
  const table = page.getByRole("table", { name, exact: true });
  return { table, bar: page.locator(".captioned", { has: page.getByText(name, { exact: true }) }) };
}

/** Reads CSV as RFC 4180 has it: rows of fields. */
function readCsv(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\n)/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === "\n") {
      rows.push([]);
    }
  }
  assert.deepEqual(rows.pop(), [], "the last line has an end");
  return rows;
}

describe("tables and pictures", { skip: executable === null && "no Chromium (apt-get install chromium)" }, () => {
  let work;
  let browser;
  let proof;
  let experiment;

  before(async () => {
    work = workFolder();
    proof = makePage(work.folder, "sample");
    experiment = makeRunPage(work.folder, "lab-1");
    browser = await launch(executable);
  });

  after(async () => {
    await browser?.close();
    work?.remove();
  });

  test("every table has its download, and a filter where there are rows to choose from", async () => {
    for (const address of [proof, experiment]) {
      const { page } = await open(browser, address);
      const found = await page.evaluate(() => [...document.querySelectorAll("table")].map((table) => ({
        rows: table.tBodies[0].rows.length,
        downloads: table.previousElementSibling.querySelectorAll("button").length,
        filters: table.previousElementSibling.querySelectorAll("input[type=search]").length,
        name: table.getAttribute("aria-labelledby") && document.getElementById(table.getAttribute("aria-labelledby")).textContent,
      })));
      assert.ok(found.length >= 4);
      for (const table of found) {
        assert.equal(table.downloads, 1, table.name);
        assert.equal(table.filters, table.rows > 1 ? 1 : 0, table.name);
        assert.ok(table.name.length > 3 && !table.name.includes("CSV"), table.name);
      }
      await page.context().close();
    }
  });

  test("a filter leaves the rows with all of its words, says how many, and the download holds those", async () => {
    const { page, complaints } = await open(browser, experiment);
    await page.getByText("All 12 trials").click();
    const { table, bar } = tableOf(page, "All trials");
    const field = bar.getByRole("searchbox");
    await field.fill("ON  off");
    const shown = await table.locator("tbody tr:visible").count();
    assert.ok(shown > 0 && shown < 12, `${shown} rows`);
    assert.equal(await bar.locator("output").innerText(), `${shown} of 12 rows`);
    const some = await saved(page, () => bar.getByRole("button").click());
    assert.match(some.name, /all-trials\.csv$/);
    assert.equal(readCsv(some.bytes.toString()).length, 1 + shown);
    await field.fill("nothing has these words");
    assert.equal(await table.locator("tbody tr:visible").count(), 0);
    await page.emulateMedia({ media: "print" });
    assert.equal(await table.locator("tbody tr:visible").count(), 12, "in print a filter leaves nothing out");
    assert.equal(await page.locator(".tools:visible").count(), 0);
    await page.emulateMedia({ media: "screen" });
    await field.fill("");
    assert.equal(await bar.locator("output").innerText(), "");
    const all = readCsv((await saved(page, () => bar.getByRole("button").click())).bytes.toString());
    assert.equal(all.length, 1 + 12);
    assert.ok(all.every((row) => row.length === all[0].length));
    const first = await table.locator("tbody tr").first().locator("th, td").allInnerTexts();
    assert.deepEqual(all[1], first.map((text) => text.trim()));
    assert.deepEqual(complaints, []);
    await page.context().close();
  });

  test("a name that could steer a page or a table of values is saved as it is", async () => {
    const evil = '=1+1,"</script>\n<b>x';
    const address = makePage(work.folder, "evil", (data) => {
      data.prove.remedies[0].rule = evil;
      return data;
    });
    const { page, complaints } = await open(browser, address);
    const { bar } = tableOf(page, "All fixes");
    const rows = readCsv((await saved(page, () => bar.getByRole("button").click())).bytes.toString());
    assert.ok(rows.some((row) => row[0].startsWith(`=1+1,"</script>`) && row[0].includes("<b>x")), String(rows[1]));
    assert.deepEqual(complaints, []);
    await page.context().close();
  });

  test("a picture is saved as an SVG that stands alone and as a PNG that shows something", async () => {
    for (const colorScheme of ["light", "dark"]) {
      const { page, complaints, requests } = await open(browser, experiment, { colorScheme });
      const before = requests.length;
      const figure = page.locator("figure.chart").first();
      const svg = await saved(page, () => figure.getByRole("button", { name: "SVG" }).click());
      const text = svg.bytes.toString();
      assert.match(svg.name, /effects-on-rate.*\.svg$/);
      assert.match(text, /^<svg [^>]*xmlns="http:\/\/www\.w3\.org\/2000\/svg"/);
      assert.ok(!text.includes("var("), "a colour of the page was left in it");
      assert.match(text, /<title>Effects on rate/);
      const png = await saved(page, () => figure.getByRole("button", { name: "PNG" }).click());
      assert.match(png.name, /\.png$/);
      assert.deepEqual(complaints, []);
      assert.ok(requests.slice(before).every((url) => url.startsWith("data:") || url.startsWith("blob:")), "it asked a network");
      await page.context().close();

      // Both are looked at where nothing of the page is.
      const other = await browser.newPage();
      const colours = async (mime, bytes) => other.evaluate(async ([type, data]) => {
        const image = new Image();
        image.src = `data:${type};base64,${data}`;
        await image.decode();
        const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        const { data: pixels } = context.getImageData(0, 0, canvas.width, canvas.height);
        const seen = new Set();
        for (let at = 0; at < pixels.length; at += 4) {
          seen.add(pixels.slice(at, at + 4).join());
        }
        return { width: image.naturalWidth, colours: seen.size, corner: [...pixels.slice(0, 4)] };
      }, [mime, bytes.toString("base64")]);
      const drawn = await colours("image/svg+xml", svg.bytes);
      const painted = await colours("image/png", png.bytes);
      assert.equal(painted.width, drawn.width * 3);
      for (const { colours: count, corner } of [drawn, painted]) {
        assert.ok(count > 20, `${count} colours`);
        assert.equal(corner[3], 255, "its ground is not see-through");
        assert.equal(corner[0] > 128, colorScheme === "light", String(corner));
      }
      await other.close();
    }
  });

  test("the map of a path and every chart of a proof can be saved", async () => {
    const { page } = await open(browser, proof);
    const pictures = await page.locator("main figure:has(svg), main .map:has(svg)").count();
    assert.ok(pictures > 10, `${pictures} pictures`);
    assert.equal(await page.getByRole("button", { name: "SVG", includeHidden: true }).count(), pictures);
    const map = await saved(page, () => page.locator(".map:visible").getByRole("button", { name: "SVG" }).click());
    assert.ok(!map.bytes.toString().includes("var("));
    await page.context().close();
  });

  test("everything can be reached and used by keyboard alone, the way past the head first", async () => {
    for (const address of [proof, experiment]) {
      const { page } = await open(browser, address);
      const wanted = await page.evaluate(() => {
        const all = [...document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")];
        const reachable = all.filter((element) => element.checkVisibility());
        reachable.forEach((element, place) => { element.dataset.place = String(place); });
        return reachable.length;
      });
      const seen = [];
      for (let step = 0; step < wanted; step += 1) {
        await page.keyboard.press("Tab");
        seen.push(await page.evaluate(() => document.activeElement.dataset.place));
        if (step === 0) {
          assert.ok(await page.locator("a.skip:focus").evaluate((link) => link.getBoundingClientRect().left >= 0));
        }
        const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
        assert.notEqual(outline, "none", `what has the focus shows it (${step})`);
      }
      assert.deepEqual(seen, Array.from({ length: wanted }, (_, place) => String(place)));
      const field = page.getByRole("searchbox").first();
      await field.focus();
      await page.keyboard.type("zzz");
      assert.equal(await page.locator(".captioned:has(input:focus) + table tbody tr:visible").count(), 0);
      await page.keyboard.press("Tab");
      const download = await saved(page, () => page.keyboard.press("Enter"));
      assert.equal(readCsv(download.bytes.toString()).length, 1);
      await page.context().close();
    }
  });

  test("without JavaScript the tables stand whole and nothing useless is shown", async () => {
    const { page } = await open(browser, experiment, { javaScriptEnabled: false });
    assert.equal(await page.locator("main button, main input").count(), 0);
    assert.ok(await page.getByRole("table", { name: "Effects on rate", exact: true }).isVisible());
    await page.context().close();
  });
});
