// The shape of the data in the page: `PageData` of crates/report/src/page.rs, only the parts
// that charts need. Rates are bit/s, times seconds, CPU costs seconds per gigabyte (10^9 bytes).

export type Arm = "before" | "without" | "with" | "after" | "confirm";

export interface Trial {
  label: string;
  arm: Arm;
  remedy_index: number | null;
  order: number;
  at_s: number[];
  rate_bit_per_s: (number | null)[];
  first_kept: number;
  mean_bit_per_s: number | null;
}

export interface Rate {
  rate_bit_per_s: number;
  low_bit_per_s: number;
  high_bit_per_s: number;
  trials: number;
}

export interface Effect {
  relative: number;
  low: number;
  high: number;
  level: number;
  pairs: number;
  smallest_detectable: number;
}

export interface Remedy {
  rule: string;
  /** The key of its first change. */
  setting: string;
  effect: Effect | null;
  kept: boolean;
  pairs_bit_per_s: [number | null, number | null][];
}

export interface CpuBar {
  arm: Arm;
  end: string;
  kind: string;
  /** Mean, lowest and highest of the trials. */
  s_per_gb: [number, number, number] | null;
  trials: number;
}

export interface Report {
  prove: {
    before: Rate;
    after: Rate;
    ceiling: { bit_per_s: number | null };
    remedies: Remedy[];
  };
  trials: Trial[];
}

/** A chart that linerate wrote itself: marks over rows of data. */
export interface Drawn {
  height: number;
  layer: Record<string, unknown>[];
  data: Record<string, unknown>[];
}

export interface PageData {
  report: Report;
  cpu: CpuBar[];
  /** Of the page of an experiment. */
  drawn?: Drawn[];
}

/** The data that the page carries, or null when it carries none. */
export function readData(): PageData | null {
  const text = document.getElementById("linerate-data")?.textContent ?? "null";
  return JSON.parse(text) as PageData | null;
}
