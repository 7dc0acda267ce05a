import assert from "node:assert/strict";
import { after, test } from "node:test";
import WebSocket from "ws";
import { AgentClient } from "agents/client";

const host = process.env.SKEP_URL.replace("http://", "");
const token = await (await fetch(`${process.env.SKEP_CONTROL}/token`)).text();

const all = [];
after(() => all.forEach((c) => c.close())); // those of tests that failed would keep the process

function open(name, more = {}) {
  const c = new AgentClient({ agent: "room", name, host, protocol: "ws", query: { token }, WebSocket, ...more });
  all.push(c);
  return c;
}

function until(read, what) {
  return new Promise((resolve, reject) => {
    const end = setTimeout(() => { clearInterval(look); reject(new Error(`never: ${what}`)); }, 10_000);
    const look = setInterval(() => {
      if (!read()) return;
      clearTimeout(end);
      clearInterval(look);
      resolve();
    }, 5);
  });
}

test("identity and initial state", { timeout: 15_000 }, async () => {
  const c = open("one");
  await c.ready;
  assert.equal(c.identified, true);
  assert.equal(c.agent, "room");
  assert.equal(c.name, "one");
  assert.deepEqual(c.state, { count: 0, names: [] });
  c.close();
});

test("names in kebab case", { timeout: 15_000 }, async () => {
  const c = open("one", { agent: "ChatRoom" });
  await c.ready;
  assert.deepEqual(c.state, { count: 0, names: [] });
  c.close();
});

test("state goes to everybody else", { timeout: 15_000 }, async () => {
  const seen = [];
  const a = open("two"), b = open("two", { onStateUpdate: (state, source) => seen.push([source, state.count]) });
  await Promise.all([a.ready, b.ready]);
  a.setState({ count: 5, names: ["a"] });
  await until(() => b.state?.count === 5, "the state");
  assert.deepEqual(seen.at(-1), ["server", 5]);
  assert.equal(await b.call("add", [2]), 7);
  await until(() => a.state.count === 7 && b.state.count === 7, "the new state");
  a.close();
  b.close();
});

test("a refused state is taken back", { timeout: 15_000 }, async () => {
  const errors = [];
  const c = open("three", { onStateUpdateError: (e) => errors.push(e) });
  await c.ready;
  c.setState({ count: -1 });
  await until(() => errors.length > 0 && c.state.count === 0, "the refusal");
  assert.match(errors[0], /count is below 0/);
  c.close();
});

test("calls", { timeout: 15_000 }, async () => {
  const c = open("four");
  await c.ready;
  assert.equal(await c.call("both", [20, 22]), 42);
  assert.equal(await c.stub.both(1, 2), 3);
  await assert.rejects(c.call("fail"), /as you asked/);
  await assert.rejects(c.call("nothing"), /there is no method/);
  await assert.rejects(c.call("onConnect"), /there is no method/);
  c.close();
});

test("streams", { timeout: 15_000 }, async () => {
  const c = open("five");
  await c.ready;
  const chunks = [];
  let last;
  const result = await c.call("countTo", [3], { stream: { onChunk: (v) => chunks.push(v), onDone: (v) => { last = v; } } });
  assert.deepEqual(chunks, [{ i: 1 }, { i: 2 }, { i: 3 }]);
  assert.equal(result, "done");
  assert.equal(last, "done");
  c.close();
});

test("messages of its own", { timeout: 15_000 }, async () => {
  const c = open("six");
  await c.ready;
  const got = [];
  c.addEventListener("message", (m) => got.push(m.data));
  c.send("hi");
  await until(() => got.includes("all: hi"), "the broadcast");
  c.send(JSON.stringify({ type: "mine", x: 1 }));
  await until(() => got.includes('{"heard":{"type":"mine","x":1}}'), "the answer");
  c.close();
});

test("a refused connection is final", { timeout: 15_000 }, async () => {
  const c = open("seven", { query: { token, refuse: "1" } });
  await until(() => c.connectionError, "the error");
  assert.equal(c.connectionError.code, 4003);
  assert.match(c.connectionError.reason, /not you/);
  c.close();
});

test("a restart of the server", { timeout: 15_000 }, async () => {
  const c = open("eight", { minReconnectionDelay: 10, maxReconnectionDelay: 50 });
  await c.ready;
  c.setState({ count: 1, names: [] });
  assert.equal(await c.call("add", [1]), 2);
  await fetch(`${process.env.SKEP_CONTROL}/restart`);
  await until(() => !c.identified || c.state.count === 2, "the loss");
  await c.ready;
  assert.equal(await c.call("add", [1]), 3);
  c.close();
});
