// The gate of Skep: each call of a tool is asked about before it is made. What it asks goes over the RPC connection, as an input that nobody but the driver
// answers; no answer, or one that cannot be read, is a no.
import { homedir } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

// plain makes of a path what pi would make of it, so that what is judged is what is done.
function plain(path, cwd) {
	let p = path.replace(/[\u00A0\u2000-\u200A\u202F\u205F\u3000]/g, " ").replace(/^@/, "").replace(/^~(?=$|\/)/, homedir());
	if (p.startsWith("file://")) {
		p = fileURLToPath(p);
	}
	return resolve(cwd, p);
}

export default function (pi) {
	pi.on("session_start", (_, ctx) => ctx.ui.setStatus("skep:gate", "on")); // without this word the driver does not begin
	pi.on("tool_call", async (event, ctx) => {
		if (typeof event.input.path === "string") {
			event.input.path = plain(event.input.path, ctx.cwd);
		}
		const asked = JSON.stringify({ tool: event.toolName, id: event.toolCallId, input: event.input });
		const said = await ctx.ui.input("skep:permission", asked, { signal: ctx.signal });
		const answer = JSON.parse(said ?? "{}");
		if (answer.allow === true) {
			return undefined;
		}
		return { block: true, reason: answer.message || "this is not allowed" };
	});
}
