// The peer's side of figure P12: what a user of @cloudflare/codemode would write. Its executor makes a new worker for each script; the tools are
// functions of this worker.
import { DynamicWorkerExecutor } from "@cloudflare/codemode";

const fns = { add: async ({ a, b }) => a + b };

export default {
  async fetch(request, env) {
    if (new URL(request.url).pathname !== "/run") return new Response("ready");
    const executor = new DynamicWorkerExecutor({ loader: env.LOADER, globalOutbound: null });
    const done = await executor.execute(await request.text(), [{ name: "tools", fns }]);
    return Response.json(done, { status: done.error ? 500 : 200 });
  },
};
