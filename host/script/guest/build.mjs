// Builds prelude.js, the script that every cell starts with. With --check it only says whether the file is up to date.
import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";

const out = new URL("prelude.js", import.meta.url);
const result = await build({
  entryPoints: [new URL("src/main.js", import.meta.url).pathname],
  absWorkingDir: new URL(".", import.meta.url).pathname,
  bundle: true,
  write: false,
  format: "iife",
  globalName: "skepPrelude",
  platform: "neutral",
  mainFields: ["module", "main"],
  target: "es2023",
  minifyWhitespace: true,
  minifySyntax: true, // names stay: authors see them in messages and in constructor.name
  legalComments: "none",
  banner: { js: "/* Built from host/script/guest/src by `npm run build`; licences in NOTICE. */(function(){" },
  footer: { js: "return skepPrelude.default})()" },
});
const text = result.outputFiles[0].text;
if (!process.argv.includes("--check")) {
  writeFileSync(out, text);
} else if (readFileSync(out, "utf8") !== text) {
  console.error("prelude.js is not what src builds: run `npm run build` in host/script/guest");
  process.exit(1);
}
