// Every picture can be saved as SVG and as PNG, in the colours that it has on the page. A saved picture stands
// alone: what the page's style says is written into it.

import { fileName, save } from "./save.js";
import { button, toolsOfPicture } from "./tools.js";

/** Pixels of a PNG for each of the page: enough for print. */
const SCALE = 3;
const SVG = "http://www.w3.org/2000/svg";

/** `var(--name, other)` with what the page says of the name. */
function resolved(value: string, style: CSSStyleDeclaration): string {
  return value.replace(/var\(\s*(--[\w-]+)\s*(?:,([^()]*))?\)/g, (_, name: string, other?: string) =>
    style.getPropertyValue(name).trim() || (other ?? "").trim());
}

/** A picture of the page as a file of its own. */
export function standalone(picture: SVGSVGElement, title: string): string {
  const style = getComputedStyle(picture);
  const { width, height } = picture.getBoundingClientRect();
  const copy = picture.cloneNode(true) as SVGSVGElement;
  for (const element of [copy, ...copy.querySelectorAll("*")]) {
    for (const attribute of [...element.attributes]) {
      if (attribute.value.includes("var(")) {
        attribute.value = resolved(attribute.value, style);
      }
    }
    if (element.tagName === "style") {
      element.textContent = resolved(element.textContent ?? "", style);
    }
  }
  if (!copy.hasAttribute("viewBox")) {
    copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  }
  copy.setAttribute("width", String(Math.round(width)));
  copy.setAttribute("height", String(Math.round(height)));
  for (const text of copy.querySelectorAll("text")) {
    text.setAttribute("paint-order", "stroke");
  }
  copy.removeAttribute("aria-hidden");
  copy.setAttribute("font-family", style.fontFamily);
  copy.setAttribute("color", style.color);
  const ground = document.createElementNS(SVG, "rect");
  const [x, y, wide, high] = copy.getAttribute("viewBox")?.split(/[\s,]+/) ?? [];
  for (const [name, value] of Object.entries({ x, y, width: wide, height: high })) {
    ground.setAttribute(name, value ?? "0");
  }
  ground.setAttribute("fill", style.getPropertyValue("--card").trim());
  const heading = document.createElementNS(SVG, "title");
  heading.textContent = title;
  copy.prepend(heading, ground);
  return new XMLSerializer().serializeToString(copy);
}

/** Paints a picture. The page's policy lets an image come from nowhere but the page itself. */
async function painted(text: string): Promise<Blob | null> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth * SCALE;
  canvas.height = image.naturalHeight * SCALE;
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function equip(owner: HTMLElement, picture: SVGSVGElement): void {
  const caption = owner.querySelector<HTMLElement>("figcaption");
  const name = caption?.textContent ?? picture.getAttribute("aria-label") ?? picture.querySelector("title")?.textContent ?? "picture";
  const tools = toolsOfPicture(owner, caption);
  tools.append(
    button("SVG", `save “${name}”`, () => {
      save(fileName(name, "svg"), new Blob([standalone(picture, name)], { type: "image/svg+xml" }));
    }),
    button("PNG", `save “${name}”`, async () => {
      const png = await painted(standalone(picture, name));
      if (png !== null) {
        save(fileName(name, "png"), png);
      }
    }),
  );
}

/** Equips every picture that was drawn. */
export function equipPictures(): void {
  for (const owner of document.querySelectorAll<HTMLElement>("main figure, main .map")) {
    const picture = owner.querySelector<SVGSVGElement>("svg");
    if (picture !== null) {
      equip(owner, picture);
    }
  }
}
