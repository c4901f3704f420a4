// What the script reads of the data in the page. Whoever wants more of it finds it there as `report` (schema
// `linerate.report/1`).

/** A chart: marks over rows of data, in Vega-Lite's terms. */
export interface Drawn {
  height: number;
  layer: Record<string, unknown>[];
  data: Record<string, unknown>[];
}

/** The charts of the page, in the order of their places; none where it has no data. */
export function readCharts(): Drawn[] {
  const text = document.getElementById("linerate-data")?.textContent ?? "null";
  const data = JSON.parse(text) as { drawn?: Drawn[] } | null;
  return data?.drawn ?? [];
}
