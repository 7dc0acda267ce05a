import assert from "node:assert/strict";
import { test } from "node:test";
import { ChatFold, Client, SkepError, Transcript } from "../index.js";

const { SKEP_URL: url, SKEP_TOKEN: token, SKEP_CONTROL: control, SKEP_TALKER: talker } = process.env;
const limit = { timeout: 60_000 };
const client = new Client({ url, token });
const said = (words) => words.split(" ").map((w) => `${w} é `).join("");
const waits = async () => Number(await (await fetch(`${talker}/waits`)).text());

// collect makes the text of an answer as a page would that shows it while it comes.
async function collect(turn, each = () => {}) {
  const parts = [];
  let text = "";
  for await (const p of turn) {
    parts.push(p);
    if (p.type === "restart") text = "";
    if (p.type === "text") text += p.text;
    await each(p, text);
  }
  return { parts, text };
}

test("a conversation", limit, async () => {
  const chat = client.chat("assistant", { title: "small talk" });
  assert.equal(chat.session, undefined);
  const { parts, text } = await collect(chat.send("one two"));
  assert.equal(text, said("one two"));
  const types = parts.map((p) => p.type).filter((t, i, all) => t !== all[i - 1]);
  assert.deepEqual(types, ["message", "start", "text", "answer", "done"]);
  assert.equal(parts.at(-1).output.trim(), said("one two").trim());
  assert.equal(parts.find((p) => p.type === "answer").stop, "end");
  assert.equal(await chat.send([{ type: "text", text: "three" }]).text(), said("three"));

  const again = client.chat("assistant", { session: chat.session });
  const messages = await again.messages();
  assert.deepEqual(messages.map((m) => [m.role, m.done, m.parts.map((p) => p.text).join("")]), [
    ["user", true, "one two"], ["assistant", true, said("one two")], ["user", true, "three"], ["assistant", true, said("three")],
  ]);
  assert.equal((await client.sessions.get(chat.session)).title, "small talk");
});

test("an answer that fails is told", limit, async () => {
  const chat = client.chat("assistant");
  const { parts } = await collect(chat.send("one fail two"));
  assert.match(parts.find((p) => p.type === "answer").error, /lost its voice/);
  assert.match(parts.at(-1).output, /^I cannot answer now/);
  const [, m] = await chat.messages();
  assert.match(m.parts.map((p) => p.text).join("|"), /lost its voice.*I cannot answer now/);
  await assert.rejects(client.chat("nobody").send("hi").text(), (e) => e instanceof SkepError && e.kind === "not_found");
});

test("an answer is cancelled", limit, async () => {
  const chat = client.chat("assistant", { key: "cancelled" });
  const turn = chat.send("one wait");
  const { parts } = await collect(turn, async (p) => {
    if (p.type === "text") await chat.cancel();
  });
  assert.equal(parts.at(-1).status, "cancelled");
  await assert.rejects(turn.text(), (e) => e.kind === "cancelled");
});

// The server is stopped in the middle of an answer and started again: the model is asked anew, and what is shown is the answer, once.
test("the server dies in the middle", limit, async () => {
  const before = await waits();
  const chat = client.chat("assistant", { key: "restarted" });
  let restarted = false;
  const { parts, text } = await collect(chat.send("one wait two"), async (p) => {
    if (p.type === "text" && !restarted) {
      restarted = true;
      while (await waits() === before) await new Promise((r) => setTimeout(r, 20));
      await fetch(`${control}/restart`);
      fetch(`${talker}/go`).catch(() => {});
    }
  });
  assert.equal(text, said("one wait two"));
  assert.ok(parts.some((p) => p.type === "restart"), "it was begun anew");
  assert.deepEqual(parts.map((p) => p.seq), [...parts].sort((a, b) => a.seq - b.seq).map((p) => p.seq));
  const [, m] = await chat.messages();
  assert.equal(m.parts.map((p) => p.text).join(""), text);
});

// Connections that are cut at any place lose and double nothing.
test("connections are cut", limit, async () => {
  let cuts = 0;
  const flaky = new Client({
    url, token,
    fetch: async (to, init) => {
      const res = await fetch(to, init);
      if (!String(to).includes("/events") || cuts >= 8) return res;
      const reader = res.body.getReader();
      let left = 150 + 97 * cuts++; // bytes
      const body = new ReadableStream({
        async pull(c) {
          const { done, value } = await reader.read();
          if (done) return c.close();
          c.enqueue(value.subarray(0, left));
          if ((left -= value.length) <= 0) {
            reader.cancel();
            c.error(new Error("cut"));
          }
        },
      });
      return new Response(body, { status: res.status, headers: res.headers });
    },
  });
  const words = Array.from({ length: 40 }, (_, i) => `w${i}`).join(" ");
  const { text } = await collect(flaky.chat("assistant", { key: "flaky" }).send(words));
  assert.equal(text, said(words));
  assert.ok(cuts > 2, `${cuts} cuts`);
});

// A run may wait for a person for long. A connection that breaks then is no server that cannot be reached.
test("a connection breaks after a long silence", limit, async () => {
  let opened = 0;
  const late = new Client({
    url, token,
    fetch: async (to, init) => {
      if (!String(to).includes("/events") || opened++ > 0) return fetch(to, init);
      const body = new ReadableStream({ start: (c) => void setTimeout(() => c.error(new Error("cut")), 300) });
      return new Response(body);
    },
  });
  assert.equal(await late.chat("assistant", { key: "late" }).send("one", { patience: 100 }).text(), said("one"));
  assert.equal(opened, 2);
});

test("a second page watches", limit, async () => {
  const chat = client.chat("assistant", { key: "watched" });
  const session = await chat.open();
  const stop = new AbortController();
  const watching = (async () => {
    for await (const all of client.chat("assistant", { session }).watch({ signal: stop.signal })) {
      if (all.length === 2 && all[1].done) return structuredClone(all.map((m) => m.parts));
    }
  })();
  await chat.send("hello there").text();
  const [asked, answered] = await watching;
  stop.abort();
  assert.equal(asked[0].text, "hello there");
  assert.equal(answered.map((p) => p.text).join(""), said("hello there"));
});

const ev = (seq, kind, data) => ({ seq, kind, run: "R", data });
const delta = (seq, attempt, offset, text, more = {}) => ev(seq, "message.delta", { id: "a", attempt, index: 0, type: "text", offset, text, ...more });

test("the fold", () => {
  const fold = new ChatFold();
  const told = [
    delta(1, 1, 0, "é"), delta(1, 1, 0, "é"), delta(2, 1, 0, "éb"), delta(3, 1, 1, "x"), ev(4, "message.started", { id: "a", attempt: 2 }), delta(5, 1, 3, "old"),
    delta(6, 2, 0, "new"), ev(7, "message.done", { id: "a", attempt: 2, stop: "end" }), ev(8, "log", {}), ev(9, "run.failed", { kind: "failed", message: "no" }),
  ].flatMap((e) => fold.add(e)).map((p) => `${p.type}${p.text ? `=${p.text}` : ""}`);
  assert.deepEqual(told, ["start", "text=é", "text=b", "restart", "text=new", "answer", "done"]);
});

test("a transcript has tools and approvals", () => {
  const t = new Transcript();
  for (const e of [
    ev(1, "message", { role: "user", content: "write" }),
    delta(2, 1, 0, '{"a"', { type: "tool-call", name: "f", call: "c" }), delta(3, 1, 4, ":1}", { type: "tool-call" }),
    ev(4, "tool.called", { call: 7, tool: "x.f" }), ev(5, "approval.requested", { id: "R-7" }), ev(6, "approval.answered", { id: "R-7", allow: true, by: "Ada" }),
    ev(7, "tool.returned", { call: 7, tool: "x.f", bytes: 2 }), ev(8, "run.completed", { output: { type: "application/json", json: "done" } }),
  ]) t.add(e);
  const [, m] = t.messages;
  assert.deepEqual(m.parts.map((p) => p.type), ["call", "tool", "approval", "text"]);
  assert.equal(m.parts[0].text, '{"a":1}');
  assert.equal(m.parts[1].returned.bytes, 2);
  assert.equal(m.parts[2].answered.by, "Ada");
  assert.equal(m.parts[3].text, "done");
  assert.equal(t.seen, 8);
});
