// Draws every chart of the page, and gives tables and pictures their controls. Expressions run through Vega's
// interpreter over their syntax tree, so that the page's policy can forbid `eval`; there is no loader to speak
// of, since all data is in the page.

import { parse, View, Warn } from "vega";
import { expressionInterpreter } from "vega-interpreter";
import { compile, type TopLevelSpec } from "vega-lite";
import { bars, cpu, drawn, effects, pairs, series } from "./charts.js";
import { readData, type PageData } from "./data.js";
import { follow } from "./live.js";
import { equipPictures } from "./pictures.js";
import { equipTables } from "./tables.js";

function chartOf(plot: HTMLElement, data: PageData): TopLevelSpec | null {
  const index = plot.dataset["index"];
  switch (plot.dataset["chart"]) {
    case "bars": return bars(data);
    case "effects": return effects(data);
    case "pairs": return pairs(data);
    case "series": return series(data, index === undefined ? null : Number(index));
    case "cpu": return cpu(data);
    case "drawn": return drawn(data, Number(index));
    default: return null;
  }
}

async function draw(plot: HTMLElement, data: PageData): Promise<void> {
  const chart = chartOf(plot, data);
  if (chart === null) {
    return;
  }
  const runtime = parse(compile(chart).spec, {}, { ast: true });
  const view = new View(runtime, {
    expr: expressionInterpreter,
    renderer: "svg",
    container: plot,
    hover: true,
    logLevel: Warn,
  });
  await view.runAsync();
  // What it shows is said once, by its place on the page, and not mark by mark.
  plot.querySelector("svg")?.setAttribute("aria-hidden", "true");
  plot.dataset["drawn"] = "yes";
}

async function drawAll(): Promise<void> {
  const data = readData();
  for (const plot of document.querySelectorAll<HTMLElement>("[data-chart]")) {
    try {
      if (data !== null) {
        await draw(plot, data);
      }
    } catch (error) {
      // One chart that cannot be drawn must not take the others with it; the tables say the same.
      const note = document.createElement("p");
      note.className = "failed";
      note.textContent = `This chart could not be drawn: ${String(error)}. Its figures stand in the tables.`;
      plot.replaceChildren(note);
      console.error(error);
    }
  }
  equipPictures();
  document.documentElement.dataset["charts"] = "done";
}

follow(equipTables());
void drawAll();
