import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent, callAgent, config, emit, kv, secret } from "./index.js";
import { FakeHost } from "./testing.js";

class Greeter extends Agent {
  greet(input) {
    this.emit("greeted", { who: input.name, lost: undefined });
    return `${this.config.word}, ${input.name}!`;
  }
  async count(text) {
    return (await this.agent("text-tool").stats(text)).words;
  }
}

test("a class agent", async () => {
  const host = new FakeHost({ config: { word: "Salve" }, agents: { "text-tool": { stats: (text) => ({ words: text.split(" ").length }) } } });
  assert.equal(await host.call(Greeter, "greet", { name: "Ada" }), "Salve, Ada!");
  assert.deepEqual(host.events, [{ name: "greeted", data: { who: "Ada" } }]);
  assert.equal(await host.call({ default: Greeter }, "count", "a b c"), 3);
});

test("named exports get a context", async () => {
  const host = new FakeHost();
  const agent = {
    double(n, ctx) {
      ctx.emit("doubling", n);
      emit("again");
      return 2 * n;
    },
  };
  assert.equal(await host.call(agent, "double", 21), 42);
  assert.deepEqual(host.events, [{ name: "doubling", data: 21 }, { name: "again" }]);
  await assert.rejects(host.call(agent, "triple"), /no function triple/);
});

test("an agent that was not granted", async () => {
  await assert.rejects(new FakeHost().call({ ask: () => callAgent("other", "f") }, "ask"), /other was not granted/);
});

test("requests", async () => {
  const agent = { user: async () => (await fetch("https://api.test/user", { headers: { authorization: `Bearer ${secret("api")}` } })).json() };
  const asked = [];
  const host = new FakeHost({
    fetch(request) {
      asked.push(request.url, request.headers.get("authorization"));
      return Response.json({ name: "Ada" });
    },
  });
  assert.deepEqual(await host.call(agent, "user"), { name: "Ada" });
  assert.deepEqual(asked, ["https://api.test/user", "Bearer {{secret:api}}"]);
  const outside = globalThis.fetch;
  await assert.rejects(new FakeHost().call(agent, "user"), (e) => e instanceof TypeError && e.cause.kind === "denied" && /api\.test/.test(e.message));
  assert.equal(globalThis.fetch, outside);
});

test("names of secrets", () => {
  assert.equal(secret("a.b-c_1"), "{{secret:a.b-c_1}}");
  for (const name of ["", "A", "-a", "a}}", 7, undefined, "a".repeat(64)]) assert.throws(() => secret(name), /is not the name of a secret/);
});

test("outside Skep the module says so", () => {
  assert.throws(() => emit("x"), /inside Skep only/);
  assert.throws(() => config.word, /inside Skep only/);
});

test("keeps state", async () => {
  const host = new FakeHost({ state: { visits: 2 } });
  const agent = {
    async visit() {
      const e = await kv.getEntry("visits");
      return kv.compareAndSet("visits", e.version, e.value + 1);
    },
    late: () => kv.compareAndSet("visits", 1, 0),
    clash: () => kv.batch([{ op: "set", key: "a", value: 1 }, { op: "check", key: "visits", ifVersion: 1 }]),
    fill: () => kv.batch(["\u{1f41d}", "\uffff", "b/1", "b/2", "b"].map((key) => ({ op: "set", key, value: new Uint8Array([1]) }))),
    list: async (o) => (await kv.list(o)).entries.map((e) => e.key),
    async walk(_, ctx) {
      const out = [];
      for await (const e of ctx.kv.entries({ prefix: "b/", reverse: true })) {
        out.push(e.key, e.value);
      }
      return out;
    },
  };
  assert.equal(await host.call(agent, "visit"), 2);
  assert.equal(await host.kv.get("visits"), 3);
  assert.equal(await host.call(agent, "late"), undefined);
  await assert.rejects(host.call(agent, "clash"), { kind: "conflict" });
  await host.call(agent, "fill");
  assert.deepEqual(await host.call(agent, "list", {}), ["b", "b/1", "b/2", "visits", "\uffff", "\u{1f41d}"]);
  assert.deepEqual(await host.call(agent, "list", { start: "b/1", end: "c", limit: 1 }), ["b/1"]);
  assert.deepEqual(await host.call(agent, "walk"), ["b/2", new Uint8Array([1]), "b/1", new Uint8Array([1])]);
});
