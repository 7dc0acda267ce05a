// The peer's side of figures P1 and P2: what a user of workerd's dynamic worker loader would write.

const worker = (text) => ({
  compatibilityDate: "2026-04-01",
  mainModule: "main.js",
  modules: { "main.js": text },
  globalOutbound: null,
});

const greet = `export default {
  async fetch(request) {
    const input = await request.json();
    return Response.json({ hi: input.name });
  },
}`;

export default {
  async fetch(request, env) {
    switch (new URL(request.url).pathname) {
      case "/ready":
        return new Response("ready");
      case "/load": { // the body is a module never seen before; it is loaded, run once and let go
        const stub = env.LOADER.load(worker(await request.text()));
        return stub.getEntrypoint().fetch("http://worker/");
      }
      case "/warm": { // a worker that stays loaded under its id
        const stub = env.LOADER.get("greet", () => worker(greet));
        return stub.getEntrypoint().fetch("http://worker/", { method: "POST", body: request.body });
      }
    }
    return new Response("not found", { status: 404 });
  },
};
