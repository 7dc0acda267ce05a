// A double of Skep for tests that run an agent in Node, Bun or Deno.

import { AsyncLocalStorage } from "node:async_hooks";
import { SkepError, context, setHost } from "./index.js";
import { FakeClock } from "./testing-clock.js";
import { FakeInstance } from "./testing-instance.js";
import { FakeKV } from "./testing-kv.js";
import { FakeModels } from "./testing-models.js";
import { FakeSandbox } from "./testing-sandbox.js";
import { Steps, duration } from "./testing-steps.js";
import { FakeTools } from "./testing-tools.js";

// calls holds the frame of the call that code belongs to.
const calls = new AsyncLocalStorage();

// settled resolves when what can go on by itself has.
const settled = async () => {
  for (let i = 0; i < 5; i++) {
    await new Promise((resolve) => setTimeout(resolve));
  }
};

const handlers = ["onStart", "onUpgrade", "onAlarm", "onConnect", "onSocketMessage", "onClose", "onStateChanged", "validateStateChange", "initialState"];

export class FakeHost {
  #inside = 0;
  #outside;
  #runs = 0;

  constructor({ config = {}, agents = {}, state = {}, fetch, key = "test", name = "agent", storage, shared, sql, tools, files, skills, approve, models, sandbox, code, now = Date.UTC(2026, 0, 1) } = {}) {
    this.config = config;
    this.agents = agents;
    this.answer = fetch;
    this.kv = new FakeKV(state);
    this.instance = new FakeInstance(this, { key, name, storage, state: shared, sql });
    this.tools = new FakeTools({ tools, files, skills, approve }, (promise) => this.waiting.push(promise));
    this.models = new FakeModels(models);
    this.sandbox = new FakeSandbox(sandbox, this.tools, () => this.now);
    this.runCode = (text, names) => {
      if (code === undefined) throw new TypeError("the model asked for a script to be run: say what comes of it, as in new FakeHost({ code: (text, tools) => value })");
      return code(text, names);
    };
    this.clock = new FakeClock(new Date(now).getTime());
    this.events = [];
    this.steps = [];
    this.sent = [];
    this.deleted = [];
    this.waiting = [];
  }

  get now() { return this.clock.now; }
  get storage() { return this.instance.storage; }
  get frame() { return calls.getStore(); }
  get shared() { return this.instance.shared.value; }
  get toolCalls() { return this.tools.made; }
  get modelCalls() { return this.models.asked; }
  get changes() { return this.tools.changed; }
  get files() { return this.tools.kept; }

  waitUntil(promise) {
    this.waiting.push(promise);
  }

  emit(name, data) {
    // As on the way to the log: only what JSON carries arrives.
    this.events.push(data === undefined ? { name } : { name, data: JSON.parse(JSON.stringify(data)) });
  }

  async callAgent(agent, functionName, input, key) {
    let target = this.agents[agent];
    if (target === undefined) {
      throw new SkepError("denied", `agent ${agent} was not granted: give it to FakeHost({ agents })`);
    }
    if (typeof target === "function" && key !== undefined) {
      target = target(key);
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

  // member returns a member of the agent under test, bound to it.
  member(name) {
    const { target, agent } = this.frame;
    const found = target?.[name] ?? agent[name];
    return typeof found === "function" ? found.bind(target) : found;
  }

  // #in runs fn as one call of an agent.
  async #in(agent, run, fn) {
    const made = agent.default ?? agent;
    const frame = { agent, run, session: run, frames: run === undefined ? [] : undefined, target: undefined };
    frame.steps = new Steps((ms, signal) => this.instance.pause(ms, signal), (mark) => this.steps.push(mark));
    if (this.#inside++ === 0) {
      setHost(this);
      this.#outside = globalThis.fetch;
      globalThis.fetch = (input, init) => this.fetch(input, init);
    }
    frame.undo = this.instance.save();
    try {
      return await calls.run(frame, async () => {
        try {
          frame.target = typeof made === "function" ? new made() : made;
          const result = await fn(frame.target);
          while (this.waiting.length > 0) {
            await Promise.all(this.waiting.splice(0));
          }
          return result;
        } catch (e) {
          await frame.steps.undoAll(e);
          await Promise.allSettled(this.waiting.splice(0));
          throw e;
        }
      });
    } catch (e) {
      if (run === undefined) {
        frame.frames = [];
        frame.undo(); // a turn that throws changes nothing
      }
      throw e;
    } finally {
      this.#flush(frame);
      if (--this.#inside === 0) {
        globalThis.fetch = this.#outside;
        setHost(undefined);
      }
    }
  }

  // #flush sends what a turn has kept for its end.
  #flush(frame) {
    for (const [client, data] of frame.frames?.splice(0) ?? []) {
      client.frames.push(data);
    }
  }

  // commit keeps what the turn has done so far.
  commit() {
    this.#flush(this.frame);
    this.frame.undo = this.instance.save();
  }

  #function(agent, target, name) {
    const handler = target[name] ?? agent[name];
    if (typeof handler !== "function") {
      throw new Error(`the agent has no function ${name}`);
    }
    return handler;
  }

  call(agent, functionName, input) {
    return this.#in(agent, undefined, (target) => {
      const args = functionName === "fetch" ? [input, this.config, context] : [input, context];
      return this.#function(agent, target, functionName).apply(target, args);
    });
  }

  start(agent, functionName, input) {
    const id = `run-${++this.#runs}`;
    const result = this.#in(agent, id, (target) => this.#function(agent, target, functionName).call(target, input, context));
    result.catch(() => {}); // the test looks at it, if it wants
    return { id, result };
  }

  async advance(time) {
    const end = this.now + duration("advance", time);
    await settled();
    for (;;) {
      const alarms = [...this.instance.alarms.values()].filter((a) => a.at <= end).sort((a, b) => a.at - b.at);
      const next = Math.min(this.clock.next(), alarms[0]?.at ?? Infinity);
      if (next > end) {
        break;
      }
      this.clock.moveTo(next);
      if (alarms[0]?.at <= next) {
        await this.ring(alarms[0].name);
      }
      await settled();
    }
    this.clock.moveTo(end);
  }

  async ring(name) {
    const alarm = this.instance.alarms.get(name);
    if (alarm === undefined) {
      throw new Error(`there is no schedule ${JSON.stringify(name)}`);
    }
    if (alarm.every !== undefined) {
      alarm.at += Math.ceil(alarm.every * 1000);
    } else if (alarm.cron === undefined) {
      this.instance.alarms.delete(name);
    }
    return this.call(alarm.agent, alarm.method, alarm.payload);
  }

  async deliver(type, data) {
    await settled();
    const i = this.instance.waiters.findIndex((w) => w.type === type);
    if (i >= 0) {
      this.instance.waiters.splice(i, 1)[0].resolve(data);
    } else {
      this.instance.arrived.push({ type, data });
    }
    await settled();
  }

  async connect(agent, { id = `c${this.instance.clients.size + 1}`, url = "ws://localhost/", headers = {}, tags = [] } = {}) {
    const client = { id, tags, attachment: undefined, frames: [], closed: undefined };
    this.instance.clients.set(id, client);
    const handle = (name, ...args) => this.#in(agent, undefined, async () => {
      await this.member(name)?.(this.instance.connection(client), ...args, context);
    });
    client.send = (data) => handle("onSocketMessage", data);
    client.setState = (next) => this.#in(agent, undefined, () => this.instance.setState(next, id));
    client.call = (method, ...args) => this.#in(agent, undefined, async (target) => {
      const isMethod = typeof target[method] === "function" && !handlers.includes(method);
      if (!isMethod) {
        throw new TypeError(`there is no method ${JSON.stringify(method)}`);
      }
      return target[method](...args);
    });
    client.close = async (code = 1005, reason = "") => {
      client.closed = { code, reason };
      this.instance.clients.delete(id);
      await handle("onClose", code, reason);
    };
    await handle("onConnect", { request: { url, headers: new Headers(headers) } });
    return client;
  }
}
