// Builds the one script of the report page and its hash, byte for byte the same on every machine: exact
// versions from package-lock.json, no time, no path in the output.
//
// usage: node scripts/build.mjs [OUTPUT_FOLDER]   (default: crates/report/src)

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const out = resolve(process.argv[2] ?? join(web, "../crates/report/src"));

const result = await build({
  absWorkingDir: web,
  entryPoints: ["src/main.ts"],
  bundle: true,
  minify: true,
  format: "iife",
  platform: "browser",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  write: false,
  metafile: true,
  logLevel: "warning",
});

// Every package that went in, by the folder it came from; nested copies count as packages of their own.
const folders = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
  const match = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
  if (match) {
    folders.add(match[1]);
  }
}

const texts = new Map();
for (const folder of [...folders].sort()) {
  const { name, version, license } = JSON.parse(readFileSync(join(web, folder, "package.json"), "utf8"));
  const file = readdirSync(join(web, folder)).find((entry) => /^licen[cs]e/i.test(entry));
  if (file === undefined) {
    throw new Error(`${name} ${version} (${license}) ships no licence text: it must not be bundled unseen`);
  }
  const text = readFileSync(join(web, folder, file), "utf8").replaceAll("\r\n", "\n").trim();
  const users = texts.get(text) ?? [];
  users.push(`${name} ${version} (${license})`);
  texts.set(text, users);
}

const notices = [...texts].map(([text, users]) => `${users.join(", ")}\n\n${text}`);
const notice = "The charts of linerate's report. Built from web/ by `npm run build`; do not edit.\n"
  + `This file holds the libraries named below, each under its own licence.\n\n${notices.join("\n\n----\n\n")}\n`;
const ascii = notice.replace(/[^\x00-\x7f]/g, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
const bundle = `/*!\n${ascii.replaceAll("*/", "* /")}*/\n${result.outputFiles[0].text.trim()}\n`;

// What follows stands inside <script>: nothing in it may end that element or confuse its parser, and a
// character that the HTML parser rewrites would break the hash.
for (const bad of ["</script", "<!--", "\r", "\0"]) {
  if (bundle.toLowerCase().includes(bad)) {
    throw new Error(`the bundle holds ${JSON.stringify(bad)}, which cannot stand in an inline script`);
  }
}

mkdirSync(out, { recursive: true });
writeFileSync(join(out, "bundle.js"), bundle);
writeFileSync(join(out, "bundle.sha256"), `${createHash("sha256").update(bundle).digest("base64")}\n`);
console.log(`bundle.js: ${bundle.length} bytes, ${folders.size} packages`);
