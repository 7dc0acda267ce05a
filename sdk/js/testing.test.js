import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent, callAgent, config, emit } from "./index.js";
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

test("outside Skep the module says so", () => {
  assert.throws(() => emit("x"), /inside Skep only/);
  assert.throws(() => config.word, /inside Skep only/);
});
