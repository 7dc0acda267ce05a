// The peer's side of figures P5, P6 and P10: what a user of Durable Objects would write.
import { DurableObject } from "cloudflare:workers";

export class Counter extends DurableObject {
  constructor(state, env) {
    super(state, env);
    this.sql = state.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS kv (k TEXT PRIMARY KEY, v INTEGER)");
  }
  async fetch() {
    const row = this.sql.exec("SELECT v FROM kv WHERE k = 'n'").toArray()[0];
    const n = (row?.v ?? 0) + 1;
    this.sql.exec("INSERT INTO kv (k, v) VALUES ('n', ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v", n);
    return Response.json({ n });
  }
}

export default {
  async fetch(request, env) {
    const path = new URL(request.url).pathname;
    if (path === "/ready") return new Response("ready");
    return env.COUNTER.get(env.COUNTER.idFromName(path)).fetch(request);
  },
};
