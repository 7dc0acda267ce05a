// Writes ../prices.json.gz and ../LICENSE.genai-prices from the package in node_modules: run npm ci, then node extract.mjs.
// The package has its data as the first constant of its module; what Skep does not read of it is left out.
import { readFileSync, writeFileSync, copyFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const at = new URL("node_modules/@pydantic/genai-prices/", import.meta.url);
const { version } = JSON.parse(readFileSync(new URL("package.json", at)));
const lines = readFileSync(new URL("dist/index.js", at), "utf8").split("\n");
const end = lines.findIndex((line) => line.startsWith("class "));
const name = /^const (\w+) = \[/.exec(lines[0])?.[1];
if (end < 0 || !name) throw new Error("the package is not made as it was: read its module, and change this script");
const all = new Function(`${lines.slice(0, end).join("\n")}\nreturn ${name}`)();

const providers = all.map((p) => ({
  id: p.id, api: p.api_pattern, provider: p.provider_match, model: p.model_match, fallback: p.fallback_model_providers,
  models: p.models.map((m) => ({
    id: m.id, match: m.match,
    prices: (Array.isArray(m.prices) ? m.prices : [{ prices: m.prices }]).map((c) => ({
      from: c.constraint?.start_date, start: c.constraint?.start_time, end: c.constraint?.end_time, prices: c.prices,
    })),
  })),
}));
writeFileSync(new URL("../prices.json.gz", import.meta.url), gzipSync(JSON.stringify({ version: `genai-prices ${version}`, providers }), { level: 9 }));
copyFileSync(new URL("LICENSE", at), new URL("../LICENSE.genai-prices", import.meta.url));
console.log(`${providers.length} providers, ${providers.reduce((n, p) => n + p.models.length, 0)} models`);
