// Hands a file to the person: made here from what the page holds, so that nothing is asked of a network.

/** How long a browser may take to begin with what it was handed. */
const KEPT_MS = 30_000;

/** A file's name from the page's title and what is in it: letters and digits of ASCII. */
export function fileName(what: string, ending: string): string {
  const words = `${document.title} ${what}`.toLowerCase().match(/[a-z0-9]+/g) ?? ["linerate"];
  return `${words.join("-").slice(0, 80)}.${ending}`;
}

export function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}
