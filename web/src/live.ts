// The pages that `linerate report --serve` gives of what still runs: asked for again every few seconds, as long
// as somebody looks. A reload of the page does the same.

import type { Refilter } from "./tables.js";

const EVERY_MS = 2_000;

/** What came is the same page, so its parts with an id take the places of those that are here. */
function exchange(place: HTMLElement, fresh: Element, refilter: Map<HTMLTableElement, Refilter>): void {
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const old = place.querySelector(`[data-part="${CSS.escape(part.getAttribute("data-part") ?? "")}"]`);
    old?.replaceChildren(...part.childNodes);
    const bar = part instanceof HTMLProgressElement && old instanceof HTMLProgressElement;
    if (bar) {
      old.max = part.max;
      old.value = part.value;
    }
  }
  for (const table of place.querySelectorAll("table")) {
    refilter.get(table)?.();
  }
}

async function ask(place: HTMLElement, refilter: Map<HTMLTableElement, Refilter>): Promise<void> {
  const answer = await fetch(place.dataset["live"] ?? "", { cache: "no-store", signal: AbortSignal.timeout(15_000) });
  if (!answer.ok) {
    throw new Error(`the answer was ${answer.status}`);
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-live]");
  // Another run began, or this one ended: the whole page is another one.
  if (fresh === null || fresh.getAttribute("data-state") !== place.getAttribute("data-state")) {
    location.reload();
    return;
  }
  exchange(place, fresh, refilter);
}

/** Keeps the live part of the page fresh. */
export function follow(refilter: Map<HTMLTableElement, Refilter>): void {
  const place = document.querySelector<HTMLElement>("[data-live]");
  if (place === null) {
    return;
  }
  const lost = place.querySelector<HTMLElement>("[data-lost]");
  const again = async (): Promise<void> => {
    if (!document.hidden) {
      try {
        await ask(place, refilter);
        lost?.setAttribute("hidden", "");
      } catch {
        // The server was ended, or the way to it: what is shown is old from now on.
        lost?.removeAttribute("hidden");
      }
    }
    setTimeout(() => void again(), EVERY_MS);
  };
  setTimeout(() => void again(), EVERY_MS);
}
