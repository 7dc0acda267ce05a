// The models of an agent under test, which say what the test has written down.

import { SkepError } from "./index.js";

const words = (v) => Math.ceil(JSON.stringify(v).length / 4);

export class FakeModels {
  #replies;
  #streams = new Map();
  #calls = 0;
  asked = [];

  constructor(replies) {
    this.#replies = Array.isArray(replies) ? [...replies] : replies;
  }

  // ask makes a call of package abi's.
  async ask(name, body) {
    const q = body === "" ? {} : JSON.parse(body);
    switch (name) {
      case "model.generate":
        return this.#answer(q);
      case "model.open":
        this.#streams.set(this.#streams.size + 1, this.#answer(q));
        this.#streams.get(this.#streams.size).catch(() => {}); // it is told to whoever reads
        return { id: this.#streams.size };
      case "model.read": {
        const answer = await this.#streams.get(q.id);
        return { pieces: answer.content.flatMap((p, index) => piecesOf(p, index)), answer };
      }
      case "model.list":
        return { models: this.#replies === undefined ? [] : [{ name: "@main" }] };
    }
    return undefined;
  }

  async #answer(ask) {
    const q = { model: "@main", ...ask };
    if (this.#replies === undefined) throw new SkepError("denied", `model ${q.model} was not granted: give FakeHost({ models })`);
    this.asked.push(q);
    let reply;
    if (typeof this.#replies === "function") reply = await this.#replies(q);
    else if (this.#replies.length > 0) reply = this.#replies.shift();
    else throw new SkepError("unavailable", `there is no reply ${this.asked.length}: FakeHost({ models }) has ${this.asked.length - 1}`);
    if (reply instanceof Error) throw reply;
    if (typeof reply === "string") reply = { text: reply };
    const content = [];
    for (const type of ["reasoning", "text", "refusal"]) if (reply[type]) content.push({ type, text: reply[type] });
    for (const c of reply.calls ?? []) content.push({ type: "tool-call", id: c.id ?? `call-${++this.#calls}`, name: c.name, args: c.args ?? {} });
    return {
      id: `answer-${this.asked.length}`, model: q.model, content: JSON.parse(JSON.stringify(content)), stop: reply.stop ?? (reply.calls?.length > 0 ? "tool" : "end"),
      usage: { input: reply.usage?.input ?? words(q.messages), output: reply.usage?.output ?? words(content) },
    };
  }
}

// piecesOf divides a part as a stream does.
function piecesOf(p, index) {
  if (p.type === "tool-call") return [{ index, type: p.type, id: p.id, name: p.name }, { index, type: p.type, text: JSON.stringify(p.args) }];
  const half = Math.ceil(p.text.length / 2);
  return [p.text.slice(0, half), p.text.slice(half)].filter((text) => text !== "").map((text) => ({ index, type: p.type, text }));
}
