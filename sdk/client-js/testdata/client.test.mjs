import assert from "node:assert/strict";
import { after, test } from "node:test";
import Ws from "ws";
import { Client, SkepError, connect } from "../index.js";
import { merge } from "../socket.js";

const { SKEP_URL: url, SKEP_TOKEN: token, SKEP_CONTROL: control } = process.env;
const WebSocket = process.env.SKEP_GLOBAL ? undefined : Ws;
const restart = () => fetch(`${control}/restart`);
const limit = { timeout: 20_000 };

const all = [];
after(() => all.forEach((c) => c.close())); // those of tests that failed would keep the process

function open(key, more = {}) {
  const c = connect({ url, token, agent: "room", key, WebSocket, reconnect: { min: 10, max: 50 }, ...more });
  all.push(c);
  return c;
}

// next resolves to the first value of a kind for which is says so.
const next = (c, type, is = () => true) => new Promise((resolve) => {
  const off = c.on(type, (v) => {
    if (!is(v)) return;
    off();
    resolve(v);
  });
});

test("state", limit, async () => {
  const a = open("state"), b = open("state");
  await Promise.all([a.ready(), b.ready()]);
  assert.deepEqual(a.state, { count: 0, names: [] });
  const seen = next(b, "state", (s) => s.count === 1);
  const set = a.setState((s) => ({ ...s, count: s.count + 1 }));
  assert.equal(a.state.count, 1, "seen before the server knows");
  assert.equal(await set, 2);
  assert.equal((await seen).count, 1);
  const both = await Promise.all(Array.from({ length: 20 }, (_, i) => (i % 2 ? a : b).setState((s) => ({ ...s, count: s.count + 1 }))));
  assert.equal(new Set(both).size, 20, "each made a version of its own");
  if (b.state.count !== 21) await next(b, "state", (s) => s.count === 21);
  assert.equal(await a.call("add", 1), 22);
  if (b.version < a.version) await next(b, "state", () => b.version === a.version);
  assert.deepEqual(b.state, a.state);
});

test("a refused change is rolled back", limit, async () => {
  const c = open("refused");
  await c.ready();
  const bad = c.setState({ count: -1 });
  assert.equal(c.state.count, -1);
  await assert.rejects(bad, (e) => e instanceof SkepError && /count is below 0/.test(e.message));
  assert.deepEqual(c.state, { count: 0, names: [] });
  await assert.rejects(c.setState(() => { throw new Error("mine"); }), /mine/);
  await c.setState({ count: 3 });
  assert.equal(c.state.count, 3);
});

test("large states", limit, async () => {
  const a = open("large"), b = open("large");
  await Promise.all([a.ready(), b.ready()]);
  const text = "x".repeat(2 ** 20 - 100);
  await a.setState({ count: 0, text });
  if (b.state.text !== text) await next(b, "state", (s) => s.text === text);
  await assert.rejects(a.setState({ count: 0, text: text + "y".repeat(200) }), { kind: "exhausted" });
  assert.equal(a.state.text, text);
});

test("calls and streams", limit, async () => {
  const c = open("calls");
  assert.equal(await c.call("both", 1, 2), 3, "before it is open");
  await assert.rejects(c.call("fail"), { kind: "failed", message: /as you asked/ });
  await assert.rejects(c.call("nothing"), { kind: "not_found" });
  const got = [];
  for await (const v of c.stream("countTo", 4)) got.push(v.i);
  assert.deepEqual(got, [1, 2, 3, 4]);
  for await (const v of c.stream("countTo", 1000)) if (v.i === 3) break;
  assert.equal(await c.call("both", 3, 4), 7);
});

test("messages", limit, async () => {
  const a = open("messages"), b = open("messages");
  await Promise.all([a.ready(), b.ready()]);
  const all = [next(a, "message"), next(b, "message")];
  a.send("hi");
  assert.deepEqual(await Promise.all(all), ["all: hi", "all: hi"]);
  const bytes = next(a, "message");
  a.send(new Uint8Array([0, 255, 7]));
  assert.deepEqual(new Uint8Array(await bytes), new Uint8Array([0, 255, 7]));
  const json = next(a, "message");
  a.send({ x: 1 });
  assert.equal(await json, '{"heard":{"x":1}}');
});

test("refusals are final", limit, async () => {
  for (const [options, kind, close] of [
    [{ agent: "nobody", reconnect: { min: 1, max: 1, attempts: 2 } }, "denied", 1006],
    [{ token: "wrong", reconnect: { min: 1, max: 1, attempts: 2 } }, "denied", 1006],
  ]) {
    const c = open("x", options);
    const ends = next(c, "close", (e) => e.final);
    await assert.rejects(c.ready(), { kind });
    assert.equal((await ends).code, close);
    await assert.rejects(c.call("both", 1, 2), { kind });
  }
  const gone = open("gone");
  await gone.ready();
  const ends = next(gone, "close");
  await new Client({ url, token }).instance("room", "gone").delete();
  assert.deepEqual(await ends, { code: 4404, reason: "the instance was deleted", final: true });
  assert.throws(() => gone.send("x"), { kind: "unavailable" });
});

// Whatever happens to the server, each event comes once and in order, and what was confirmed stays.
test("restarts", limit, async () => {
  const c = open("restarts"), events = [];
  c.on("event", (ev) => events.push([ev.seq, ev.data.text]));
  await c.ready();
  await c.setState({ count: 1, names: [] });
  const writer = new Client({ url, token }).instance("room", "restarts");
  let said = 0;
  const say = async () => writer.call("say", `n${said++}`);
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 3; i++) await say();
    await restart();
    for (let i = 0; i < 3; i++) await say(); // some of them before the client is back
    await c.ready();
  }
  while (events.length < said) await next(c, "event");
  assert.deepEqual(events.map((e) => e[1]), Array.from({ length: said }, (_, i) => `n${i}`));
  assert.deepEqual(c.state, { count: 1, names: [] });
  assert.equal(await c.call("add", 1), 2);
  const later = open("restarts", { resume: { ...c.position, events: events[4][0] } }), again = [];
  later.on("event", (ev) => again.push(ev.data.text));
  while (again.length < said - 5) await next(later, "event");
  assert.equal(again[0], "n5");
});

test("a call under way when the connection is lost rejects", limit, async () => {
  const c = open("lost");
  await c.ready();
  const call = c.call("slow");
  const over = assert.rejects(call, { kind: "unavailable", message: /lost/ });
  const closed = next(c, "close");
  await Promise.all([restart(), closed]);
  await over;
  assert.equal(await c.call("both", 1, 1), 2, "and the next one goes through");
});

test("http", limit, async () => {
  const client = new Client({ url, token: async () => token });
  assert.ok((await client.agents.list()).items.some((a) => a.name === "room"));
  assert.equal(await client.call("room", "double", 21), 42);
  const items = client.instance("room", "http").stream("countTo", 2), got = [];
  let it;
  while (!(it = await items.next()).done) got.push(it.value);
  assert.deepEqual([got, it.value], [[{ i: 1 }, { i: 2 }], "done"]);
  assert.deepEqual(await client.instance("room", "http").call("countTo", 2), [{ i: 1 }, { i: 2 }]);
  await assert.rejects(client.instance("room", "http").stream("fail").next(), { kind: "failed", message: /as you asked/ });
  await assert.rejects(client.agents.get("nobody"), { kind: "not_found", status: 404 });
  await assert.rejects(new Client({ url, token: "wrong" }).agents.list(), { kind: "unauthenticated" });
  await assert.rejects(new Client({ url: "http://127.0.0.1:1" }).agents.list(), { kind: "unavailable" });
  const run = await client.run("room", "run", { a: 1 });
  const kinds = [];
  for await (const ev of client.events({ run: run.id })) kinds.push(ev.kind);
  assert.equal(kinds.at(-1), "run.completed");
  assert.equal((await client.wait(run.id)).status, "completed");
  const seqs = [];
  const log = client.events({ agent: "room", key: "restarts" });
  for await (const ev of log) {
    seqs.push(ev.seq);
    if (seqs.length === 4) await restart(); // the stream goes on where it was
    if (seqs.length === 12) break;
  }
  assert.deepEqual(seqs, seqs.map((_, i) => seqs[0] + i));
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 20);
  await assert.rejects(async () => { for await (const _ of client.events({ agent: "room" }, { signal: stop.signal })); }, { kind: "cancelled" });
});

test("merge is RFC 7396", () => { // its appendix A
  for (const [target, patch, want] of [
    [{ a: "b" }, { a: "c" }, { a: "c" }], [{ a: "b" }, { b: "c" }, { a: "b", b: "c" }], [{ a: "b" }, { a: null }, {}],
    [{ a: "b", b: "c" }, { a: null }, { b: "c" }], [{ a: ["b"] }, { a: "c" }, { a: "c" }], [{ a: "c" }, { a: ["b"] }, { a: ["b"] }],
    [{ a: { b: "c" } }, { a: { b: "d", c: null } }, { a: { b: "d" } }], [{ a: [{ b: "c" }] }, { a: [1] }, { a: [1] }],
    [["a", "b"], ["c", "d"], ["c", "d"]], [{ a: "b" }, ["c"], ["c"]], [{ a: "foo" }, null, null], [{ a: "foo" }, "bar", "bar"],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }], [[1, 2], { a: "b", c: null }, { a: "b" }], [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
    [{}, JSON.parse('{"__proto__":{"x":1}}'), JSON.parse('{"__proto__":{"x":1}}')],
  ]) assert.deepEqual(merge(target, patch), want);
});
