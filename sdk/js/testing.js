// A double of Skep for tests that run an agent in Node, Bun or Deno.

import { SkepError, context, setHost } from "./index.js";

export class FakeHost {
  constructor({ config = {}, agents = {} } = {}) {
    this.config = config;
    this.agents = agents;
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

  async call(agentModule, functionName, input) {
    setHost(this);
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
      setHost(undefined);
    }
  }
}
