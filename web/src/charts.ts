// The theme of the charts. linerate wrote their marks (`crates/report/src/chart`); here they get their width, fonts and
// the colours of axes and words: the page's CSS variables, so that light, dark and print need no second drawing.

import type { TopLevelSpec } from "vega-lite";
import type { Drawn } from "./data.js";

const INK = "var(--ink)";
const SOFT = "var(--ink-soft)";
const LINE = "var(--line)";

/** A chart of the page, as Vega-Lite compiles it. */
export function spec({ height, layer, data }: Drawn): TopLevelSpec {
  // Layers are plain data; Vega-Lite checks them when it compiles.
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    width: "container",
    height,
    // Other numbers on an axis, once the width is known, may need a little more of it.
    padding: { left: 0, right: 6, top: 4, bottom: 4 },
    autosize: { type: "fit-x", contains: "padding", resize: true },
    data: { values: data },
    layer,
    config: {
      background: "transparent",
      aria: false,
      font: getComputedStyle(document.body).fontFamily,
      view: { stroke: null },
      axis: {
        labelColor: SOFT, titleColor: SOFT, gridColor: LINE, domainColor: LINE,
        tickColor: LINE, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
        titlePadding: 8, gridOpacity: 0.7, labelFlush: false, labelSeparation: 6,
      },
      legend: { labelColor: INK, titleColor: SOFT, labelFontSize: 12, orient: "top", title: null, offset: 4, columnPadding: 22 },
      text: { color: INK, fontSize: 12 },
    },
  } as unknown as TopLevelSpec;
}
