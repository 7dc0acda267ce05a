// Reads queries, one JSON object a line, and writes what the package says that each costs, in dollars: a number, or null.
import { createInterface } from "node:readline";
import { calcPrice } from "@pydantic/genai-prices";

console.warn = () => {}; // of units that it does not count
const none = {
  cache_audio_read_tokens: 0, cache_audio_write_tokens: 0, cache_audio_write_1h_tokens: 0, cache_image_read_tokens: 0, cache_image_write_tokens: 0,
  cache_text_read_tokens: 0, cache_video_read_tokens: 0, input_image_tokens: 0, input_video_tokens: 0, input_text_tokens: 0, output_image_tokens: 0,
  output_video_tokens: 0, output_text_tokens: 0, output_citation_tokens: 0, output_audio_reasoning_tokens: 0, cache_image_write_1h_tokens: 0,
};
const out = [];
for await (const line of createInterface({ input: process.stdin })) {
  const q = JSON.parse(line);
  const r = calcPrice({ ...none, ...q.usage }, q.model, { providerId: q.vendor || undefined, providerApiUrl: q.url || undefined, timestamp: new Date(q.time) });
  out.push(JSON.stringify(r === null ? null : r.total_price));
}
process.stdout.write(out.join("\n") + "\n");
