import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent, ChatAgent, SkepError, model } from "./index.js";
import { FakeHost } from "./testing.js";

test("a model is asked", async () => {
  const host = new FakeHost({ models: ["Hello.", { text: "x", calls: [{ name: "add", args: { a: 1, b: 2 } }] }, "3"] });
  class Asks extends Agent {
    async ask(q) {
      return (await this.model.generate(q)).text;
    }
    async add() {
      const a = await model.generate({ prompt: "1+2", tools: { add: { run: ({ a, b }) => a + b } } });
      return [a.text, a.messages.length];
    }
  }
  assert.equal(await host.call(Asks, "ask", "Hi"), "Hello.");
  assert.deepEqual(host.modelCalls, [{ model: "@main", messages: [{ role: "user", content: "Hi" }] }]);
  assert.deepEqual(await host.call(Asks, "add"), ["3", 3]);
  assert.deepEqual(host.modelCalls[2].messages[2], { role: "user", content: [{ type: "tool-result", id: "call-1", name: "add", result: "3" }] });
  await assert.rejects(host.call(Asks, "ask", "Hi"), { kind: "unavailable", message: "there is no reply 4: FakeHost({ models }) has 3" });
  await assert.rejects(new FakeHost().call(Asks, "ask", "Hi"), { name: "SkepError", kind: "denied" });
});

test("an answer comes in pieces", async () => {
  const host = new FakeHost({ models: () => ({ text: "abcd", calls: [{ name: "f", args: { a: 1 } }] }) });
  const agent = {
    f: async () => {
      const all = [];
      for await (const p of model.stream("x")) all.push(p.type === "end" ? p.answer.calls[0].args : (p.text ?? p.name));
      return all;
    },
    early: async () => {
      for await (const p of model.stream("x")) return p.text;
    },
  };
  assert.deepEqual(await host.call(agent, "f"), ["ab", "cd", "f", '{"a":1}', { a: 1 }]);
  assert.equal(await host.call(agent, "early"), "ab");
});

test("a stream runs tools", async () => {
  const models = [
    { text: "I add.", calls: [{ name: "add", args: { a: 1, b: 2 } }, { name: "bad" }], usage: { input: 10, output: 2 } },
    { calls: [{ name: "add", args: { a: 3, b: 4 } }], usage: { input: 20, output: 3 } },
    { text: "Done.", usage: { input: 30, output: 4 } },
  ];
  const tools = {
    add: { run: ({ a, b }) => a + b },
    bad: { run: () => { throw new Error("no good"); } },
  };
  const agent = {
    all: async (q) => {
      const all = [], s = model.stream({ prompt: "Go.", tools, show: "s", ...q });
      for await (const p of s) all.push(p.type === "end" ? p.answer.text : p.type === "tool-result" ? [p.name, p.result, p.failed] : [p.index, p.text ?? p.name]);
      const a = await s.answer;
      return [all, a.messages.map((m) => m.role), a.usage.input, a.usage.output, a.calls.length];
    },
    whole: async () => (await model.stream({ prompt: "Go.", tools }).answer).text,
    left: async () => {
      for await (const p of model.stream({ prompt: "Go.", tools })) if (p.type === "tool-result") return p.result;
    },
    other: async () => (await model.stream({ prompt: "Go.", tools: { ...tools, add: {} } }).answer).calls.map((c) => c.name),
  };
  let host = new FakeHost({ models });
  assert.deepEqual(await host.call(agent, "all", {}), [
    [
      [0, "I a"], [0, "dd."], [1, "add"], [1, '{"a":1,"b":2}'], [2, "bad"], [2, "{}"], ["add", "3", undefined], ["bad", "no good", true],
      [3, "add"], [3, '{"a":3,"b":4}'], ["add", "7", undefined], [4, "Don"], [4, "e."], "Done.",
    ],
    ["assistant", "user", "assistant", "user", "assistant"], 60, 9, 0,
  ]);
  assert.deepEqual(host.modelCalls.map((q) => [q.show, q.messages.length]), [["s", 1], ["s.2", 3], ["s.3", 5]]);
  host = new FakeHost({ models });
  assert.deepEqual((await host.call(agent, "all", { maxSteps: 2 })).slice(1), [["assistant", "user", "assistant"], 30, 5, 1]);
  assert.equal(await new FakeHost({ models }).call(agent, "whole"), "Done.");
  host = new FakeHost({ models });
  assert.equal(await host.call(agent, "left"), "3");
  assert.equal(host.modelCalls.length, 1);
  assert.deepEqual(await new FakeHost({ models }).call(agent, "other"), ["add", "bad"]);
});

class Notes extends ChatAgent {
  instructions = () => "Help with notes.";
  tools = ["notes.*"];
  contextTokens = 1000;
  maxSteps = 3;
  static functions = { today: { description: "The date.", run: () => "Monday" } };
  functions() {
    return { mine: { run() { return this.sessionId; } } };
  }
  onToolCall(call) {
    if (call.name === "notes.drop") throw new Error("not this one");
    if (call.name === "notes.known") return { cached: true };
  }
}

const said = (host, i) => host.modelCalls.at(i).messages;
const notes = (models, more) => {
  const tools = { "notes.find": ({ q }) => `found ${q}`, "notes.drop": () => "gone", "notes.known": () => "never", "mail.send": () => "sent" };
  tools["notes.find"].schema = { type: "object", properties: { q: { type: "string" } } };
  return new FakeHost({ models, tools, ...more });
};
const tell = (host, content, agent = Notes) => host.start(agent, "onMessage", { role: "user", content }).result;

test("a chat calls tools", async () => {
  const host = notes([
    { text: "I look.", calls: [{ name: "notes_find", args: { q: "bees" } }, { name: "notes_drop" }, { name: "notes_known" }, { name: "today" }, { name: "mail_send" }, { name: "mine" }] },
    "Here.",
  ]);
  assert.equal(await tell(host, "Find bees."), "Here.");
  const [first, second] = host.modelCalls;
  assert.equal(first.system, "Help with notes.");
  assert.deepEqual(first.tools.map((t) => t.name), ["today", "mine", "notes_find", "notes_drop", "notes_known"]);
  assert.deepEqual(first.tools[2].schema, { type: "object", properties: { q: { type: "string" } } });
  assert.deepEqual(second.messages[2].content.map((p) => [p.result, p.failed]), [
    ["found bees", undefined],
    ["not this one", true],
    ['{"cached":true}', undefined],
    ["Monday", undefined],
    ['there is no tool "mail_send"; there are today, mine, notes_find, notes_drop, notes_known', true],
    ["run-1", undefined],
  ]);
  assert.deepEqual(host.toolCalls, [{ tool: "notes.find", args: { q: "bees" } }]);
});

test("a call that was cut short has a result", async () => {
  const host = notes(["I go on."]);
  await host.storage.set("chat/run-1", { first: 0, next: 2 });
  await host.storage.set("chat/run-1/00000000", { role: "user", content: "Drop it." });
  await host.storage.set("chat/run-1/00000001", { role: "assistant", content: [{ type: "tool-call", id: "c", name: "notes_find", args: {} }] });
  assert.equal(await tell(host, "And now?"), "I go on.");
  assert.deepEqual(said(host, 0), [
    { role: "user", content: [{ type: "text", text: "Drop it." }] },
    { role: "assistant", content: [{ type: "tool-call", id: "c", name: "notes_find", args: {} }] },
    { role: "user", content: [
      { type: "tool-result", id: "c", name: "notes_find", failed: true, result: "the call was cut short: whether it has taken effect is not known" },
      { type: "text", text: "And now?" },
    ] },
  ]);
});

// One session, many messages: each run of a test is a session of its own, so its messages are sent within one run.
class Long extends Notes {
  async talk(texts) {
    const replies = [];
    for (const content of texts) replies.push(await this.onMessage({ role: "user", content }));
    return replies;
  }
}

test("a long chat is summed up, or cut", async () => {
  for (const by of ["model", "fallback"]) {
    const host = notes((ask) => {
      const sums = typeof ask.messages[0].content === "string";
      if (!sums) return { text: "Yes.", usage: { input: 0, output: 0 } };
      return by === "model" ? "Bees, mostly." : new SkepError("unavailable", "nobody is there");
    });
    const texts = Array.from({ length: 8 }, (_, i) => `${i} ${"word ".repeat(200)}`);
    assert.deepEqual(await host.start(Long, "talk", texts).result, Array(8).fill("Yes."));
    const points = host.events.filter((e) => e.name === "chat.checkpoint");
    assert.ok(points.length >= 2);
    for (const { data } of points) {
      assert.equal(data.by, by);
      assert.match(data.summary, by === "model" ? /^Bees/ : /messages before this point are left out/);
      assert.ok(data.before_tokens > 800 && data.after_tokens < data.before_tokens);
    }
    const last = said(host, -1);
    assert.match(last[0].content[0].text, /^This is what was said before, in short:/);
    assert.match(last.at(-1).content.at(-1).text, /^7 /);
    const all = await host.call(Long, "history", { session: "run-1" });
    assert.equal(all.messages.length, 16);
    assert.equal(all.first, points.at(-1).data.upto + 1);
  }
});

test("errors are replies", async () => {
  const host = notes([new SkepError("exhausted", "the limit is reached", "model", "wait an hour"), "Better."]);
  assert.deepEqual(await host.start(Long, "talk", ["a", "b"]).result, ["I cannot answer now: the limit is reached (wait an hour)", "Better."]);
  assert.deepEqual(host.events, [{ name: "chat.error", data: { kind: "exhausted", message: "the limit is reached (wait an hour)" } }]);
  assert.deepEqual(said(host, 1), [{ role: "user", content: [{ type: "text", text: "a" }, { type: "text", text: "b" }] }]);
  class Strict extends Notes {
    onError(e) { throw e; }
  }
  await assert.rejects(tell(notes([new Error("broken")]), "a", Strict), { message: "broken" });
  const loops = notes(() => ({ calls: [{ name: "today" }] }));
  assert.equal(await tell(loops, "a"), "I stopped after 3 steps.");
  assert.deepEqual(loops.modelCalls.map((q) => q.choice), [undefined, undefined, "none"]);
  const gone = notes([{ calls: [{ name: "notes_find", args: { q: "x" } }] }], { tools: { "notes.find": () => { throw new SkepError("cancelled", "the run is ended"); } } });
  await assert.rejects(tell(gone, "a"), { kind: "cancelled" });
});

test("a reply can be another", async () => {
  class Loud extends Notes {
    onReply(a) { return a.text.toUpperCase(); }
  }
  assert.equal(await tell(notes(["hello"]), "a", Loud), "HELLO");
  assert.equal(await tell(notes([{ refusal: "No." }]), "a"), "No.");
  await assert.rejects(tell(notes([]), [{ type: "tool-result", id: "x" }]), TypeError);
});
