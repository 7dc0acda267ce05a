// A double of Skep for tests that run an agent in Node, Bun or Deno.

import { SkepError, context, setHost } from "./index.js";
import { FakeKV } from "./testing-kv.js";

export class FakeHost {
  constructor({ config = {}, agents = {}, state = {}, fetch } = {}) {
    this.config = config;
    this.agents = agents;
    this.answer = fetch;
    this.kv = new FakeKV(state);
    this.events = [];
    this.waiting = [];
  }

  waitUntil(promise) {
    this.waiting.push(promise);
  }

  emit(name, data) {
    // As on the way to the log: only what JSON carries arrives.
    this.events.push(data === undefined ? { name } : { name, data: JSON.parse(JSON.stringify(data)) });
  }

  async callAgent(agent, functionName, input) {
    const target = this.agents[agent];
    if (target === undefined) {
      throw new SkepError("denied", `agent ${agent} was not granted: give it to FakeHost({ agents })`);
    }
    return target[functionName](input);
  }

  async fetch(input, init) {
    const request = new Request(input, init);
    if (this.answer === undefined) {
      const { host } = new URL(request.url);
      const cause = new SkepError("denied", `no host is granted, so it may not reach ${host}: give FakeHost({ fetch })`);
      throw new TypeError(cause.message, { cause });
    }
    return this.answer(request);
  }

  async call(agentModule, functionName, input) {
    setHost(this);
    const outside = globalThis.fetch;
    globalThis.fetch = (input, init) => this.fetch(input, init);
    try {
      const made = agentModule.default ?? agentModule;
      const target = typeof made === "function" ? new made() : made;
      const handler = target[functionName] ?? agentModule[functionName];
      if (typeof handler !== "function") {
        throw new Error(`the agent has no function ${functionName}`);
      }
      const args = functionName === "fetch" ? [input, this.config, context] : [input, context];
      const result = await handler.apply(target, args);
      await Promise.all(this.waiting);
      return result;
    } finally {
      globalThis.fetch = outside;
      setHost(undefined);
    }
  }
}
