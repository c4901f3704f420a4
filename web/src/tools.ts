// What tables and pictures share: a row of small controls beside their caption. The caption alone stays the
// name of the table or figure.

let named = 0;

/** A bar with the caption's text, which names `owner`, and the place for the controls. */
function bar(owner: HTMLElement, text: Iterable<Node>): { bar: HTMLElement; tools: HTMLElement } {
  const name = document.createElement("span");
  name.id = `caption-${++named}`;
  name.append(...text);
  owner.setAttribute("aria-labelledby", name.id);
  const tools = document.createElement("span");
  tools.className = "tools";
  const bar = document.createElement("div");
  bar.className = "captioned";
  bar.append(name, tools);
  return { bar, tools };
}

/** The place for the controls of a table. Within a table there are rows and nothing else (WAI-ARIA 1.2), so they stand
 * before it, with what its caption says; the caption itself is for those who hear the page. */
export function toolsOfTable(table: HTMLTableElement): HTMLElement {
  const text = document.createTextNode(table.caption?.textContent ?? "");
  const made = bar(table, [text]);
  made.bar.classList.add("of-table");
  // It is heard as the table's name.
  made.bar.firstElementChild?.setAttribute("aria-hidden", "true");
  table.caption?.classList.add("spoken");
  table.before(made.bar);
  return made.tools;
}

/** The place for the controls of a picture: within its caption, or at its end. */
export function toolsOfPicture(owner: HTMLElement, caption: HTMLElement | null): HTMLElement {
  if (caption !== null) {
    const made = bar(owner, [...caption.childNodes]);
    caption.append(made.bar);
    return made.tools;
  }
  const tools = document.createElement("span");
  tools.className = "tools";
  owner.append(tools);
  return tools;
}

/** A button that says `text`, and to a screen reader also what it is about. */
export function button(text: string, about: string, act: () => void | Promise<void>): HTMLButtonElement {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", `${text}: ${about}`);
  made.addEventListener("click", () => void act());
  return made;
}
