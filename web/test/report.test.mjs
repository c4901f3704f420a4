// The report page in a real browser, made by linerate from a fixed sample: what a person sees, with and
// without JavaScript, light and dark, wide and narrow, and with hostile names in the data.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { chromium, launch, makePage, makeRunPage, open, workFolder } from "./browser.mjs";

const executable = chromium();

/** Relative luminance and contrast as WCAG 2.2 defines them. */
function contrast(one, other) {
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/\d+(\.\d+)?/g).slice(0, 3).map((part) => {
      const value = Number(part) / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [bright, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (bright + 0.05) / (dark + 0.05);
}

/** What is wrong with how the charts of a page look, a line each. */
function faultsOfCharts(page) {
  return page.evaluate(() => {
    const faults = [];
    for (const place of document.querySelectorAll("[data-chart]")) {
      const title = place.closest("figure").querySelector("figcaption").textContent;
      const svg = place.querySelector("svg");
      for (const element of svg.querySelectorAll("*")) {
        for (const name of ["fill", "stroke"]) {
          const colour = element.getAttribute(name) ?? "none";
          if (!/^(var\(--[a-z0-9-]+\)|none|transparent)$/.test(colour)) {
            faults.push(`${title}: the colour ${colour} is none of the page's`);
          }
        }
      }
      const column = place.getBoundingClientRect();
      const drawn = [...svg.querySelectorAll("text, line, path")].filter((element) => element.closest(".background") === null);
      const boxes = drawn.map((element) => element.getBoundingClientRect()).filter((box) => box.width + box.height > 0);
      const [left, right] = [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right))];
      if (left < column.left - 2 || left > column.left + 12 || right > column.right + 2 || right < column.right - 24) {
        faults.push(`${title}: drawn from ${left} to ${right} in a column from ${column.left} to ${column.right}`);
      }
      const isSeen = (text) => text.textContent !== "" && text.getAttribute("opacity") !== "0" && text.getBoundingClientRect().width > 0;
      const texts = [...svg.querySelectorAll("text")].filter(isSeen);
      const within = svg.getBoundingClientRect();
      for (const [place, text] of texts.entries()) {
        const box = text.getBoundingClientRect();
        if (text.textContent.endsWith("…")) {
          faults.push(`${title}: "${text.textContent}" is cut off`);
        }
        if (box.left < within.left - 1 || box.right > within.right + 1) {
          faults.push(`${title}: "${text.textContent}" leaves the chart`);
        }
        for (const other of texts.slice(place + 1)) {
          const next = other.getBoundingClientRect();
          const [across, down] = [
            Math.min(box.right, next.right) - Math.max(box.left, next.left),
            Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top),
          ];
          // The boxes of lines below each other share the space of their descenders.
          if (across > 1 && down > 0.35 * Math.min(box.height, next.height)) {
            faults.push(`${title}: "${text.textContent}" and "${other.textContent}" overlap`);
          }
        }
      }
      const words = texts.filter((text) => text.closest(".mark-text.role-mark") !== null);
      const lines = [...svg.querySelectorAll(".mark-rule line, .mark-line path, .role-axis-grid line")];
      const bars = [...svg.querySelectorAll(".mark-rect.role-mark path")];
      const meet = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
      const isBefore = (one, other) => (one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;
      for (const text of words) {
        const box = text.getBoundingClientRect();
        const style = getComputedStyle(text);
        const hasHalo = style.stroke !== "none" && parseFloat(style.strokeWidth) >= 2 && style.paintOrder.startsWith("stroke");
        for (const line of lines.filter((line) => meet(line.getBoundingClientRect(), box))) {
          const hides = (bar) => isBefore(line, bar) && isBefore(bar, text) && meet(bar.getBoundingClientRect(), box);
          if (!(isBefore(line, text) && hasHalo) && !bars.some(hides)) {
            faults.push(`${title}: a line runs through "${text.textContent}"`);
          }
        }
      }
    }
    return faults;
  });
}

describe("the report page", { skip: executable === null && "no Chromium (apt-get install chromium)" }, () => {
  let work;
  let browser;
  let address;
  let hostile;

  before(async () => {
    work = workFolder();
    address = makePage(work.folder, "sample");
    hostile = makePage(work.folder, "hostile", (data) => {
      const evil = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>";
      data.title = evil;
      data.local.name = `"><svg onload=window.pwned=1>${evil}`;
      data.local.host.nics[0].name = "<b>'\"&</b>".replace("/", "");
      data.local.nic = data.local.host.nics[0].name;
      data.local.host.identity.hostname = `${evil}\u2028\u202e\u0000<!--<script>`;
      data.prove.remedies[0].rule = evil;
      data.prove.limit.what = evil;
      data.reproduce[0].command = evil;
      data.trials[0].label = evil;
      return data;
    });
    browser = await launch(executable);
  });

  after(async () => {
    await browser?.close();
    work?.remove();
  });

  test("loads without an error and asks the network for nothing", async () => {
    const { page, complaints, requests } = await open(browser, address);
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests, [address]);
    await page.context().close();
  });

  test("draws every chart with marks in it", async () => {
    const { page } = await open(browser, address);
    const places = await page.locator("[data-chart]").count();
    assert.ok(places >= 10, `only ${places} places for charts`);
    assert.equal(await page.locator('[data-chart][data-drawn="yes"] > svg').count(), places);
    for (const svg of await page.locator("[data-chart] > svg").all()) {
      const marks = await svg.locator(".mark-rect path, .mark-symbol path, .mark-line path, .mark-rule line").count();
      assert.ok(marks > 0, "a chart has no mark");
    }
    await page.context().close();
  });

  for (const width of [420, 1400]) {
    for (const colorScheme of ["light", "dark"]) {
      test(`draws charts whose words are whole and apart, in the page's colours, as wide as their column, at ${width} px, ${colorScheme}`, async () => {
        const { page, complaints } = await open(browser, address, { colorScheme, viewport: { width, height: 800 } });
        assert.deepEqual(await faultsOfCharts(page), []);
        assert.deepEqual(complaints, []);
        await page.context().close();
      });
    }
  }

  test("marks what became of each fix, and the ceiling", async () => {
    const { page } = await open(browser, address);
    const chart = (title) => page.locator("figure", { has: page.locator("figcaption", { hasText: title }) }).locator("[data-chart]");
    const texts = await chart("Effect on the rate").locator(".mark-text.role-mark text").allTextContents();
    for (const text of ["3.2× helped", "+74.8 % helped", "-1.5 % rolled back", "? not tried", "gray: below the minimum detectable effect"]) {
      assert.ok(texts.includes(text), `${text} is not in ${texts}`);
    }
    assert.equal(await chart("All trials: rate").locator(".mark-symbol.role-mark path").count(), 60);
    for (const title of ["Before, after, ceiling", "Before and after", "fix tso-gso-off"]) {
      assert.ok((await chart(title).first().textContent()).includes("ceiling 31.20 Gb/s"), title);
    }
    await page.context().close();
  });

  test("says the verdict first, and every figure of the fixes in a table", async () => {
    const { page } = await open(browser, address);
    const headline = await page.locator(".headline").innerText();
    assert.match(headline.replace(/\s+/g, " "), /3\.\d\d Gb\/s.*2\d\.\d\d Gb\/s.*8\.\d×/);
    const table = page.getByRole("table", { name: "All fixes", exact: true });
    assert.equal(await table.getByRole("row").count(), 1 + 7);
    assert.match(await table.innerText(), /not significant \(minimum detectable effect \d+\.\d %\)/);
    assert.equal(await page.locator("table:not(:has(caption))").count(), 0);
    await page.context().close();
  });

  test("is whole without JavaScript", async () => {
    const { page, complaints } = await open(browser, address, { javaScriptEnabled: false });
    const text = await page.locator("main").innerText();
    for (const words of ["Gb/s", "helped", "rolled back", "not tried", "injected and found", "shared-kernel", "iperf3", "memory copy"]) {
      assert.ok(text.includes(words), `the page does not say ${words}`);
    }
    assert.ok(await page.locator(".map svg").first().isVisible());
    assert.deepEqual(complaints, []);
    await page.context().close();
  });

  for (const width of [320, 400, 768, 1280]) {
    test(`does not scroll sideways at ${width} px`, async () => {
      const { page } = await open(browser, address, { viewport: { width, height: 800 } });
      const [needed, offered] = await page.evaluate(() => [
        document.documentElement.scrollWidth, document.documentElement.clientWidth,
      ]);
      assert.ok(needed <= offered, `${needed} px in ${offered} px`);
      const seen = await page.locator(".map:visible").count();
      assert.equal(seen, 1, "exactly one form of the map is shown");
      await page.context().close();
    });
  }

  for (const colorScheme of ["light", "dark"]) {
    test(`has readable text in the ${colorScheme} scheme, in charts too`, async () => {
      const { page } = await open(browser, address, { colorScheme });
      const [ground, ...inks] = await page.evaluate(() => {
        const of = (selector, property) => getComputedStyle(document.querySelector(selector))[property];
        return [
          of(".chart", "backgroundColor"), of("p.lead", "color"), of(".headline .is", "color"),
          of(".fate.helped", "color"), of(".pair [data-chart] svg .mark-text text", "fill"),
          of("#rates ~ .grid [data-chart] svg .role-axis-label text", "fill"),
        ];
      });
      for (const ink of inks) {
        assert.ok(contrast(ink, ground) >= 4.5, `${ink} on ${ground} in ${colorScheme}`);
      }
      const dark = contrast(ground, "rgb(255,255,255)") > 10;
      assert.equal(dark, colorScheme === "dark");
      await page.context().close();
    });
  }

  test("is not steered by names from a host", async () => {
    const { page, complaints, requests } = await open(browser, hostile);
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests, [hostile]);
    assert.equal(await page.locator("main img, main script").count(), 0);
    assert.ok((await page.title()).startsWith("</script><script>"), "the name is shown as it is");
    await page.context().close();
  });

  test("forbids eval and inline code that is not its own", async () => {
    const { page } = await open(browser, address);
    const blocked = await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "window.pwned = 1";
      document.body.append(script);
      return window.pwned === undefined;
    });
    assert.ok(blocked);
    await page.context().close();
  });
});

/** Tests of the page of a stored run in the repository: `open` opens it in a browser that all of them share. */
function describeRun(what, name, tests) {
  describe(what, { skip: executable === null && "no Chromium (apt-get install chromium)" }, () => {
    let work;
    let browser;
    const run = { open: (options) => open(browser, run.address, options) };

    before(async () => {
      work = workFolder();
      run.address = makeRunPage(work.folder, name);
      browser = await launch(executable);
    });

    after(async () => {
      await browser?.close();
      work?.remove();
    });

    tests(run);

    for (const width of [420, 1400]) {
      test(`draws charts whose words are whole and apart, in the page's colours, as wide as their column, at ${width} px`, async () => {
        const { page, complaints } = await run.open({ viewport: { width, height: 800 } });
        assert.deepEqual(await faultsOfCharts(page), []);
        assert.deepEqual(complaints, []);
        await page.context().close();
      });
    }

    for (const width of [320, 768, 1000, 1400]) {
      test(`does not scroll sideways at ${width} px`, async () => {
        const { page } = await run.open({ viewport: { width, height: 800 } });
        const [needed, offered] = await page.evaluate(() => [
          document.documentElement.scrollWidth, document.documentElement.clientWidth,
        ]);
        assert.ok(needed <= offered, `${needed} px in ${offered} px`);
        await page.context().close();
      });
    }
  });
}

describeRun("the page of an experiment", "lab-1", (run) => {
  test("asks the network for nothing and draws every chart with its data", async () => {
    const { page, complaints, requests } = await run.open();
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests, [run.address]);
    const places = await page.locator("[data-chart]").count();
    // Effects, the grid, every combination, four small ones over the trials' time, all trials.
    assert.equal(places, 8);
    assert.equal(await page.locator('[data-chart][data-drawn="yes"] > svg').count(), places);
    // Three effects: a point and an interval each, and the line at zero.
    const effects = page.locator("[data-chart]").first();
    assert.equal(await effects.locator(".mark-symbol.role-mark path").count(), 3);
    assert.equal(await effects.locator(".mark-rule.role-mark line").count(), 4);
    await page.context().close();
  });

  test("tells the effects first, takes a hostile title for text, and holds every trial in a table", async () => {
    const { page } = await run.open();
    assert.match(await page.locator("h1").innerText(), /<b>Segmentation<\/b> & receive offload/);
    assert.match(await page.locator("h1 + p + ul").innerText(), /tso off vs on: -\d+\.\d %/);
    await page.getByText("All 12 trials").click();
    const table = page.getByRole("table", { name: "All trials", exact: true });
    assert.equal(await table.getByRole("row").count(), 1 + 12);
    assert.equal(await page.locator("table:not(:has(caption))").count(), 0);
    await page.context().close();
  });

  test("says everything without JavaScript, and fits a phone", async () => {
    const { page } = await run.open({
      javaScriptEnabled: false, viewport: { width: 360, height: 740 },
    });
    assert.ok(await page.getByRole("table", { name: "Effects on rate", exact: true }).isVisible());
    assert.equal(await page.locator(".chart").first().isVisible(), false);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
    assert.equal(wide, false);
    await page.context().close();
  });
});

describeRun("the page of an experiment with grids and sizes", "lab-2", (run) => {
  test("draws what the raw records hold, and complains of nothing", async () => {
    const { page, complaints, requests } = await run.open();
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests, [run.address]);
    // Behind its words a caption has the buttons that save the picture.
    const chart = (title) => page.locator("figure", { has: page.locator("figcaption", { hasText: new RegExp(`^${title}`) }) });
    // A point for each size, an interval through each, and a line through all.
    const curves = chart("rate, Gb/s");
    assert.equal(await curves.locator(".mark-symbol.role-mark path").count(), 3);
    assert.equal(await curves.locator(".mark-rule.role-mark line").count(), 3);
    assert.equal(await curves.locator(".mark-line.role-mark path").count(), 1);
    // Three sizes with four quantiles each.
    assert.equal(await chart("Operation latency").locator(".mark-symbol.role-mark path").count(), 12);
    // Nine trials, and two CPUs of which at least one kind is seen.
    const boxes = await chart("Both ends, on one kernel").locator(".mark-rect.role-mark path").count();
    assert.ok(boxes >= 18 && boxes % 18 === 0, `${boxes} boxes`);
    for (const size of ["4KiB", "16KiB", "64KiB"]) {
      assert.equal(await chart(size).locator(".mark-line.role-mark path").count(), 3);
    }
    const places = await page.locator("[data-chart]").count();
    assert.equal(await page.locator('[data-chart][data-drawn="yes"] > svg').count(), places);
    await page.context().close();
  });

  test("shows the grid that both ends told, and the way that the data took", async () => {
    const { page } = await run.open();
    assert.match(await page.locator("section", { has: page.locator("#grid") }).innerText(), /bit-identical to the final grid of a trial/);
    // Three moments, and the row through the middle.
    assert.equal(await page.locator(".pictures svg").count(), 4);
    const ways = page.locator(".map.wide path title", { hasText: "packets of near0 were processed on CPU" });
    assert.ok(await ways.count() > 0);
    await page.context().close();
  });
});

describeRun("the page of an experiment over sizes and time", "lab-3", (run) => {
  // Behind its words a caption has the buttons that save the picture.
  const charts = (page, title) =>
    page.locator("figure", { has: page.locator("figcaption", { hasText: title }) }).locator("[data-chart]");

  /** What a chart is drawn from, as the page holds it. */
  const dataOf = (chart) => chart.evaluate((place) =>
    JSON.parse(document.getElementById("linerate-data").textContent).drawn[Number(place.dataset.chart)]);

  test("draws a line with its band and every point of each combination over the sizes", async () => {
    const { page, complaints, requests } = await run.open();
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests, [run.address]);
    const places = await page.locator("[data-chart]").count();
    assert.equal(await page.locator('[data-chart][data-drawn="yes"] > svg').count(), places);
    const section = page.locator("section", { has: page.locator("#sizes") });
    for (const title of [/^one way \(median\), us/, /^rate, Gb\/s/]) {
      const curves = section.locator("figure", { has: page.locator("figcaption", { hasText: title }) }).locator("[data-chart]");
      const { data } = await dataOf(curves);
      const lines = new Set(data.map(({ line }) => line));
      // Three sizes, of which the one without payload has no place on the axis.
      assert.equal(data.length, 2 * lines.size);
      assert.equal(await curves.locator(".mark-symbol.role-mark path").count(), data.length);
      assert.equal(await curves.locator(".mark-line.role-mark path").count(), lines.size);
      assert.equal(await curves.locator(".mark-area.role-mark path").count(), lines.size);
    }
    const table = page.getByRole("table", { name: "Figures by size", exact: true });
    assert.equal(await table.getByRole("row").count(), 1 + 3 * 2);
    await page.context().close();
  });

  test("draws a box for each step in which a CPU worked, in the frame of what was measured", async () => {
    const { page } = await run.open();
    const courses = charts(page, /both ends, block \d+/);
    assert.equal(await courses.count(), 2);
    for (const course of await courses.all()) {
      const { data, layer } = await dataOf(course);
      const [frames, boxes] = await course.locator(".mark-rect.role-mark").all();
      assert.equal(await frames.locator("path").count(), layer[0].data.values.length);
      assert.equal(await boxes.locator("path").count(), data.length);
      assert.ok(data.length >= 4, `only ${data.length} boxes`);
    }
    await page.context().close();
  });
});
