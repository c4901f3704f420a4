// Draws every chart of the page, and gives tables and pictures their controls. Expressions run through Vega's
// interpreter over their syntax tree, so that the page's policy can forbid `eval`; there is no loader to speak
// of, since all data is in the page.

import { parse, View, Warn } from "vega";
import { expressionInterpreter } from "vega-interpreter";
import { compile } from "vega-lite";
import { spec } from "./charts.js";
import { readCharts, type Drawn } from "./data.js";
import { follow } from "./live.js";
import { equipPictures } from "./pictures.js";
import { equipTables } from "./tables.js";

async function draw(plot: HTMLElement, chart: Drawn): Promise<void> {
  const runtime = parse(compile(spec(chart)).spec, {}, { ast: true });
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
  const charts = readCharts();
  for (const plot of document.querySelectorAll<HTMLElement>("[data-chart]")) {
    try {
      const chart = charts[Number(plot.dataset["chart"])];
      if (chart !== undefined) {
        await draw(plot, chart);
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
