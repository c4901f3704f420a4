// Every table gets a field that leaves only the rows with the typed words, and a button that saves as CSV what
// is shown. Without JavaScript the table stands whole, and in print it always does.

import { fileName, save } from "./save.js";
import { button, toolsOfTable } from "./tools.js";

/** The text of a cell; its lines and items are separated. */
function textOf(cell: Element): string {
  let text = "";
  const walk = (node: Node): void => {
    if (node.nodeType === Node.TEXT_NODE) {
      text += node.nodeValue ?? "";
      return;
    }
    if (node instanceof Element && (node.tagName === "BR" || node.tagName === "LI") && text.trim() !== "") {
      text += "; ";
    }
    node.childNodes.forEach(walk);
  };
  walk(cell);
  return text.replace(/\s+/g, " ").trim();
}

/** As `linerate export` quotes: a text that a reader would take apart. */
function quoted(text: string): string {
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The head and the rows that are shown (RFC 4180, but for the line's end, which is that of Unix). */
export function csv(table: HTMLTableElement): string {
  const rows = [...table.rows].filter((row) => !row.hidden);
  return rows.map((row) => `${[...row.cells].map((cell) => quoted(textOf(cell))).join(",")}\n`).join("");
}

/** Applies a table's filter again, after its rows were changed. */
export type Refilter = () => void;

function equip(table: HTMLTableElement): Refilter {
  const name = table.caption?.textContent ?? "table";
  const tools = toolsOfTable(table);
  const download = button("CSV", `save “${name}”`, () => {
    save(fileName(name, "csv"), new Blob([csv(table)], { type: "text/csv;charset=utf-8" }));
  });
  const rows = (): HTMLTableRowElement[] => [...table.tBodies].flatMap((body) => [...body.rows]);
  if (rows().length < 2 && table.dataset["grows"] === undefined) {
    tools.append(download);
    return () => undefined;
  }
  const field = document.createElement("input");
  field.type = "search";
  field.autocomplete = "off";
  field.spellcheck = false;
  field.setAttribute("aria-label", `Filter the rows of “${name}”`);
  const label = document.createElement("label");
  label.append("Filter ", field);
  const count = document.createElement("output");
  tools.append(count, label, download);

  // A long table is searched at every key.
  const texts = new WeakMap<HTMLTableRowElement, string>();
  const textOfRow = (row: HTMLTableRowElement): string => {
    const text = texts.get(row) ?? [...row.cells].map(textOf).join(" ").toLowerCase();
    texts.set(row, text);
    return text;
  };
  const apply = (): void => {
    const words = field.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const all = rows();
    let shown = 0;
    for (const row of all) {
      const holds = words.every((word) => textOfRow(row).includes(word));
      // Setting what is set already costs a large table its layout.
      if (row.hidden === holds) {
        row.hidden = !holds;
      }
      shown += Number(holds);
    }
    count.value = words.length === 0 ? "" : `${shown} of ${all.length} rows`;
  };
  field.addEventListener("input", apply);
  return apply;
}

/** Equips every table, and gives for each the way to filter it again. */
export function equipTables(): Map<HTMLTableElement, Refilter> {
  const tables = [...document.querySelectorAll<HTMLTableElement>("main table")];
  return new Map(tables.map((table) => [table, equip(table)]));
}
