// The charts as Vega-Lite specifications: data in, data out. Every interval was computed by linerate and
// is drawn as it is; nothing is estimated here. Shapes, dashes and words carry the meaning, colour only
// helps. Colours are the page's CSS variables, so that light, dark and print need no second drawing.

import type { TopLevelSpec } from "vega-lite";
import type { Arm, PageData, Remedy, Trial } from "./data.js";

type Layer = Record<string, unknown>;

const INK = "var(--ink)";
const SOFT = "var(--ink-soft)";
const ACCENT = "var(--accent)";
const WARM = "var(--warm)";
const BAND = "var(--band)";
const CARD = "var(--card)";

const GIGA = 1e9;
// Room for a remedy, its points and its text.
const ROW = 54;
const RATE_TITLE = "rate, Gb/s";

function giga(bitPerSecond: number | null): number | null {
  return bitPerSecond === null ? null : bitPerSecond / GIGA;
}

/** As many digits as `BitRate` prints, so that a chart and a table never seem to disagree. */
export function rateText(bitPerSecond: number): string {
  const steps: [number, string][] = [[1e12, "Tb/s"], [1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"]];
  for (const [size, name] of steps) {
    if (bitPerSecond >= size) {
      const value = bitPerSecond / size;
      return `${value.toFixed(value >= 100 ? 1 : 2)} ${name}`;
    }
  }
  return `${bitPerSecond.toFixed(0)} b/s`;
}

function percentText(ratio: number): string {
  const text = (ratio * 100).toFixed(Math.abs(ratio) < 9.995 ? 1 : 0);
  return `${ratio > 0 && Number(text) !== 0 ? "+" : ""}${text} %`;
}

/** Quotients as the tables print them: two digits where one would hide the difference. */
function timesText(value: number): string {
  return `${value.toFixed(value < 2 ? 2 : 1)}×`;
}

/** A figure of an effect: from a doubling on the whole effect is told as a factor. */
function effectText(effect: { relative: number }, ratio: number): string {
  return effect.relative >= 1 ? timesText(1 + ratio) : percentText(ratio);
}

function spec(height: number, layer: Layer[], data: unknown[] = []): TopLevelSpec {
  // Layers are written as plain data; Vega-Lite checks them when it compiles.
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    width: "container",
    height,
    autosize: { type: "fit-x", contains: "padding", resize: true },
    data: { values: data },
    layer,
    config: {
      background: "transparent",
      aria: false,
      font: getComputedStyle(document.body).fontFamily,
      view: { stroke: null },
      axis: {
        labelColor: SOFT, titleColor: SOFT, gridColor: "var(--line)", domainColor: "var(--line)",
        tickColor: "var(--line)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
        titlePadding: 8, gridOpacity: 0.7, labelFlush: false,
      },
      legend: { labelColor: INK, titleColor: SOFT, labelFontSize: 12, orient: "top", title: null, offset: 4, columnPadding: 22 },
      text: { color: INK, fontSize: 12 },
    },
  } as unknown as TopLevelSpec;
}

/** A chart of an experiment, as linerate wrote it. */
export function drawn({ drawn }: PageData, index: number): TopLevelSpec | null {
  const chart = drawn?.[index];
  return chart === undefined ? null : spec(chart.height, chart.layer, chart.data);
}

/** Before, after and the ceiling as bars with intervals. */
export function bars({ report }: PageData): TopLevelSpec {
  const { before, after, ceiling } = report.prove;
  const measured = [["before", before], ["after", after]] as const;
  const rows = measured.map(([name, rate]) => ({
    name,
    rate: rate.rate_bit_per_s / GIGA,
    low: rate.low_bit_per_s / GIGA,
    high: rate.high_bit_per_s / GIGA,
    text: rateText(rate.rate_bit_per_s),
  }));
  // Room at the right for the figures.
  const end = Math.max(...rows.map((row) => row.high * 1.18), (ceiling.bit_per_s ?? 0) / GIGA * 1.04, 1e-9);
  const layer: Layer[] = [
    {
      mark: { type: "bar", height: { band: 0.62 }, cornerRadiusEnd: 3 },
      encoding: {
        y: { field: "name", type: "nominal", sort: null, title: null,
          axis: { ticks: false, domain: false, labelColor: INK, labelFontSize: 13, labelPadding: 8 } },
        x: { field: "rate", type: "quantitative", title: RATE_TITLE, axis: { grid: true, tickCount: 8 }, scale: { nice: false, domain: [0, end] } },
        color: { field: "name", scale: { domain: ["before", "after"], range: ["var(--k5)", ACCENT] }, legend: null },
        tooltip: { field: "text" },
      },
    },
    {
      mark: { type: "rule", color: INK, strokeWidth: 2 },
      encoding: { y: { field: "name", type: "nominal", sort: null }, x: { field: "low", type: "quantitative" }, x2: { field: "high" } },
    },
    // A long bar carries its figure, a short one has it beside.
    barText(rows.filter((row) => row.high > end / 2), { align: "right", dx: -12, color: CARD }, "low"),
    barText(rows.filter((row) => row.high <= end / 2), { align: "left", dx: 12 }, "high"),
  ];
  if (ceiling.bit_per_s !== null) {
    layer.push(...ceilingRule(ceiling.bit_per_s, "x"));
  }
  return spec(96, layer, rows);
}

function barText(values: unknown[], style: Layer, at: string): Layer {
  return {
    data: { values },
    mark: { type: "text", fontWeight: "bold", fontSize: 13, ...style },
    encoding: { y: { field: "name", type: "nominal", sort: null }, x: { field: at, type: "quantitative" }, text: { field: "text" } },
  };
}

/** The ceiling as a dashed line with its name and rate. */
function ceilingRule(bitPerSecond: number, axis: "x" | "y"): Layer[] {
  const values = [{ at: bitPerSecond / GIGA, text: `ceiling ${rateText(bitPerSecond)}` }];
  const place = { [axis]: { field: "at", type: "quantitative" } };
  const label = axis === "x"
    ? { align: "right", baseline: "top", dx: -5, y: -12 }
    : { align: "right", baseline: "bottom", dy: -4, x: "width" };
  return [
    { data: { values }, mark: { type: "rule", strokeDash: [7, 4], strokeWidth: 1.5, color: INK }, encoding: place },
    { data: { values }, mark: { type: "text", ...label }, encoding: { ...place, text: { field: "text" } } },
  ];
}

function remedyNames(remedies: Remedy[]): string[] {
  // One that no rule proposed is known by its setting.
  const names = remedies.map(({ rule, setting }) => rule === "given" ? setting.slice(setting.lastIndexOf("/") + 1) : rule);
  // A rule may propose more than one remedy; the axis must not lay them onto each other.
  return names.map((name, index) => names.filter((other) => other === name).length > 1 ? `${name} #${index + 1}` : name);
}

function remedyAxis(names: string[]): Layer {
  return {
    field: "name", type: "nominal", title: null, scale: { domain: names },
    // A long name goes on at its last hyphen: a cut one is not the name of any rule.
    axis: {
      ticks: false, domain: false, labelColor: INK, labelLimit: 160, labelPadding: 8,
      labelExpr: "length(datum.label) > 22 ? [slice(datum.label, 0, 1 + lastindexof(slice(datum.label, 0, 20), '-')), "
        + "slice(datum.label, 1 + lastindexof(slice(datum.label, 0, 20), '-'))] : datum.label",
    },
  };
}

/** Each remedy's effect with its interval against zero. */
export function effects({ report }: PageData): TopLevelSpec {
  const { remedies } = report.prove;
  const names = remedyNames(remedies);
  // One axis for all: of factors when one of them doubles the rate, else of percent.
  const inFactors = remedies.some(({ effect }) => effect !== null && effect.relative >= 1);
  const zero = inFactors ? 1 : 0;
  const rows = remedies.flatMap(({ effect, kept }, index) => effect === null ? [] : [{
    name: names[index],
    relative: zero + effect.relative,
    low: zero + effect.low,
    high: zero + effect.high,
    unseen_low: zero - Math.min(effect.smallest_detectable, 1),
    unseen_high: zero + effect.smallest_detectable,
    fate: kept ? "● helped" : "◇ rolled back",
    text: `${effectText(effect, effect.relative)} ${kept ? "helped" : "rolled back"}`,
    about: `${effectText(effect, effect.relative)}, ${effectText(effect, effect.low)} to ${effectText(effect, effect.high)} `
      + `(${(effect.level * 100).toFixed(0)} %, ${effect.pairs} pairs)`,
  }]);
  const untried = remedies.flatMap(({ effect }, index) => effect === null ? [{ name: names[index], zero, text: "? not tried" }] : []);
  const y = remedyAxis(names);
  const x = inFactors
    ? { type: "quantitative", title: "times the rate without", axis: { format: "~g", labelExpr: "datum.label + '×'", tickCount: 5 } }
    : { type: "quantitative", title: "change of the rate", axis: { format: "+.0%", tickCount: 5 } };
  return spec(names.length * ROW, [
    {
      mark: { type: "bar", height: { band: 0.5 }, color: BAND },
      encoding: { y, x: { ...x, field: "unseen_low" }, x2: { field: "unseen_high" } },
    },
    { data: { values: [{ zero }] }, mark: { type: "rule", color: INK, strokeWidth: 1 }, encoding: { x: { ...x, field: "zero" } } },
    {
      mark: { type: "errorbar", ticks: { size: 10, thickness: 1.5, color: INK }, rule: { strokeWidth: 1.5, color: INK } },
      encoding: { y, x: { ...x, field: "low" }, x2: { field: "high" } },
    },
    {
      mark: { type: "point", size: 110, filled: true, stroke: INK, strokeWidth: 1.5, opacity: 1 },
      encoding: {
        y, x: { ...x, field: "relative" },
        shape: { field: "fate", scale: { domain: ["● helped", "◇ rolled back"], range: ["circle", "diamond"] }, legend: null },
        fill: { field: "fate", scale: { domain: ["● helped", "◇ rolled back"], range: [ACCENT, CARD] }, legend: null },
        tooltip: { field: "about" },
      },
    },
    {
      mark: { type: "text", dy: -17, fontWeight: "bold", align: { expr: "datum.relative > 0.5 * domain('x')[1] ? 'right' : 'left'" },
        dx: { expr: "datum.relative > 0.5 * domain('x')[1] ? 8 : -8" } },
      encoding: { y, x: { ...x, field: "relative" }, text: { field: "text" } },
    },
    {
      data: { values: untried },
      mark: { type: "text", align: "left", dx: 8, color: SOFT },
      encoding: { y, x: { ...x, field: "zero" }, text: { field: "text" } },
    },
    {
      data: { values: [{ text: "gray: below the minimum detectable effect" }] },
      mark: { type: "text", align: "right", baseline: "bottom", color: SOFT, fontSize: 11, x: "width", y: -4 },
      encoding: { text: { field: "text" } },
    },
  ], rows);
}

/** Each pair as a line from the rate without to the rate with the remedy. */
export function pairs({ report }: PageData): TopLevelSpec {
  const { remedies } = report.prove;
  const names = remedyNames(remedies);
  const rows = remedies.flatMap((remedy, index) => remedy.pairs_bit_per_s.map(([without, withIt], pair) => ({
    name: names[index],
    pair,
    without: giga(without),
    with: giga(withIt),
    about: `pair ${pair + 1}: ${without === null ? "?" : rateText(without)} without, ${withIt === null ? "?" : rateText(withIt)} with`,
  })));
  const y = remedyAxis(names);
  const yOffset = { field: "pair", type: "ordinal", scale: { paddingOuter: 0.5 } };
  const x = { type: "quantitative", title: RATE_TITLE, scale: { zero: false, nice: false, padding: 8 }, axis: { tickCount: 5 } };
  return spec(names.length * ROW, [
    {
      mark: { type: "rule", color: SOFT, strokeWidth: 1.2 },
      encoding: { y, yOffset, x: { ...x, field: "without" }, x2: { field: "with" } },
    },
    {
      mark: { type: "point", size: 34, filled: true, fill: CARD, stroke: INK, strokeWidth: 1.3, opacity: 1 },
      encoding: { y, yOffset, x: { ...x, field: "without" }, tooltip: { field: "about" } },
    },
    {
      mark: { type: "point", size: 34, filled: true, color: ACCENT, opacity: 1 },
      encoding: { y, yOffset, x: { ...x, field: "with" }, tooltip: { field: "about" } },
    },
  ], rows);
}

const ARM_STYLE: Record<Arm, { colour: string; dash: number[] }> = {
  before: { colour: WARM, dash: [5, 3] },
  without: { colour: WARM, dash: [5, 3] },
  with: { colour: ACCENT, dash: [] },
  after: { colour: ACCENT, dash: [] },
  confirm: { colour: SOFT, dash: [2, 2] },
};

function warmupEnd(trial: Trial): number {
  return trial.first_kept > 0 ? trial.at_s[Math.min(trial.first_kept, trial.at_s.length) - 1] ?? 0 : 0;
}

/** All trials of a remedy over time, or, without an index, those before and after. */
export function series({ report }: PageData, index: number | null): TopLevelSpec {
  const trials = report.trials.filter((trial) => index === null
    ? trial.arm !== "with" && trial.arm !== "without"
    : trial.remedy_index === index);
  const arms = (Object.keys(ARM_STYLE) as Arm[]).filter((arm) => trials.some((trial) => trial.arm === arm));
  const rows = trials.flatMap((trial) => trial.at_s.map((at, i) => ({
    at, rate: giga(trial.rate_bit_per_s[i] ?? null), arm: trial.arm, trial: trial.label,
  })));
  const warmup = Math.max(0, ...trials.map(warmupEnd));
  const x = { type: "quantitative", title: "time in the trial, s", scale: { nice: false, domainMin: 0 }, axis: { grid: false, tickCount: 5 } };
  const y = { type: "quantitative", title: RATE_TITLE, scale: { zero: true }, axis: { tickCount: 5 } };
  const styled = { domain: arms };
  const layer: Layer[] = [];
  if (warmup > 0) {
    layer.push({
      data: { values: [{ from: 0, to: warmup }] },
      mark: { type: "rect", color: BAND },
      encoding: { x: { ...x, field: "from" }, x2: { field: "to" } },
    }, {
      data: { values: [{ from: 0, text: "warm-up" }] },
      mark: { type: "text", align: "left", baseline: "top", dx: 4, y: 4, color: SOFT, fontSize: 11 },
      encoding: { x: { ...x, field: "from" }, text: { field: "text" } },
    });
  }
  layer.push({
    mark: { type: "line", strokeWidth: 1.4, opacity: 0.85, interpolate: "monotone", clip: true },
    encoding: {
      x: { ...x, field: "at" },
      y: { ...y, field: "rate" },
      detail: { field: "trial" },
      color: { field: "arm", scale: { ...styled, range: arms.map((arm) => ARM_STYLE[arm].colour) }, legend: { symbolType: "stroke", symbolSize: 500, symbolStrokeWidth: 2 } },
      strokeDash: { field: "arm", scale: { ...styled, range: arms.map((arm) => ARM_STYLE[arm].dash) } },
    },
  });
  const ceiling = report.prove.ceiling.bit_per_s;
  if (ceiling !== null) {
    layer.push(...ceilingRule(ceiling, "y"));
  }
  return spec(210, layer, rows);
}

const KINDS = ["user", "system", "softirq", "irq", "steal"];

/** CPU seconds per gigabyte by kind, stacked, one bar for each end before and after. */
export function cpu({ cpu }: PageData): TopLevelSpec {
  const known = cpu.filter((bar) => bar.s_per_gb !== null);
  const total = new Map<string, number>();
  const rows = known.map((bar) => {
    const name = `${bar.end}, ${bar.arm}`;
    const from = total.get(name) ?? 0;
    const to = from + (bar.s_per_gb?.[0] ?? 0);
    total.set(name, to);
    return { name, end: bar.end, kind: bar.kind, from, to, middle: (from + to) / 2, cost: to - from };
  });
  const widest = Math.max(...total.values(), 1e-9);
  // Ends stay together, before above after.
  const names = [...new Set(known.map((bar) => bar.end))]
    .flatMap((end) => [`${end}, before`, `${end}, after`])
    .filter((name) => total.has(name));
  const labelled = rows.map((row) => ({
    ...row,
    text: row.cost / widest > 0.13 ? `${row.kind} ${row.cost.toFixed(2)}` : "",
    about: `${row.kind} ${row.cost.toFixed(3)} s/GB`,
  }));
  const y = {
    field: "name", type: "nominal", title: null, scale: { domain: names },
    // A long name goes on at its last hyphen: a cut one is not the name of any rule.
    axis: {
      ticks: false, domain: false, labelColor: INK, labelLimit: 160, labelPadding: 8,
      labelExpr: "length(datum.label) > 22 ? [slice(datum.label, 0, 1 + lastindexof(slice(datum.label, 0, 20), '-')), "
        + "slice(datum.label, 1 + lastindexof(slice(datum.label, 0, 20), '-'))] : datum.label",
    },
  };
  // Room at the right for the sums.
  const x = { type: "quantitative", title: "CPU time, s/GB", axis: { tickCount: 6 }, scale: { nice: false, domain: [0, widest * 1.14] } };
  const kinds = KINDS.filter((kind) => rows.some((row) => row.kind === kind));
  const sums = names.map((name) => ({ name, sum: total.get(name) ?? 0, text: `${(total.get(name) ?? 0).toFixed(2)} s/GB` }));
  return spec(names.length * 40, [
    {
      mark: { type: "bar", height: { band: 0.72 }, stroke: CARD, strokeWidth: 1.5 },
      encoding: {
        y, x: { ...x, field: "from" }, x2: { field: "to" },
        color: { field: "kind", scale: { domain: kinds, range: kinds.map((kind) => `var(--k${KINDS.indexOf(kind) + 1})`) } },
        tooltip: { field: "about" },
      },
    },
    {
      mark: { type: "text", fontSize: 11, stroke: CARD, strokeWidth: 3.5, strokeJoin: "round" },
      encoding: { y, x: { ...x, field: "middle" }, text: { field: "text" } },
    },
    { mark: { type: "text", fontSize: 11 }, encoding: { y, x: { ...x, field: "middle" }, text: { field: "text" } } },
    {
      data: { values: sums },
      mark: { type: "text", align: "left", dx: 6, fontWeight: "bold" },
      encoding: { y, x: { ...x, field: "sum" }, text: { field: "text" } },
    },
  ], labelled);
}
