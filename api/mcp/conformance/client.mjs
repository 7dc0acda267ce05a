// The official TypeScript client, as editors and agents embed it: lists, calls, follows progress, cancels, runs a script. Arguments: URL, token.
// It prints one line of JSON.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token] = process.argv.slice(2);
const client = new Client({ name: "typescript", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));

const out = { server: client.getServerVersion().name, progress: [] };
out.tools = (await client.listTools()).tools.map((t) => t.name);
out.add = (await client.callTool({ name: "demo.add", arguments: { a: 2, b: 40 } })).structuredContent;
out.failed = (await client.callTool({ name: "demo.fail", arguments: {} })).isError;
out.templates = (await client.listResourceTemplates()).resourceTemplates.length;

const code = `for (const n of [1, 2]) context.emit("progress", { progress: n, total: 2, message: "step " + n }); return (await tools.demo.add({ a: input, b: 1 })).sum`;
const run = await client.callTool({ name: "execute", arguments: { code, input: 9 } }, undefined, { onprogress: (p) => out.progress.push(p.message) });
out.execute = run.content[0].text;

const stop = new AbortController();
const slow = client.callTool({ name: "demo.slow", arguments: {} }, undefined, {
  signal: stop.signal, onprogress: () => stop.abort("enough"), // the first news is that the tool is called
});
out.cancelled = await slow.then(() => false, () => true);

await client.transport.terminateSession();
await client.close();
console.log(JSON.stringify(out));
