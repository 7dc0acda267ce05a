// Outside Skep this module stands in for the built-in one: with a FakeHost from "skep/testing" it works, without one it says so.

import { chatAgent } from "./chat.js";
import { makeModel } from "./model.js";
import { makeSandbox } from "./sandbox.js";

let host;

// setHost is for testing.js; undefined takes the host away again.
export function setHost(next) {
  host = next;
}

function need(what) {
  if (host === undefined) {
    throw new Error(`${what} works inside Skep only; in a test, call the agent through FakeHost of "skep/testing"`);
  }
  return host;
}

export function emit(name, data) {
  need("emit()").emit(name, data);
}

export function callAgent(agent, functionName, input) {
  return need("callAgent()").callAgent(agent, functionName, input);
}

export const config = new Proxy(
  {},
  {
    get: (_, key) => need("config").config[key],
    has: (_, key) => key in need("config").config,
    ownKeys: () => Reflect.ownKeys(need("config").config),
    getOwnPropertyDescriptor: (_, key) => Object.getOwnPropertyDescriptor(need("config").config, key),
  },
);

// kv passes each call on to the host of the test.
export const kv = Object.fromEntries(
  ["get", "getMany", "getEntry", "set", "delete", "compareAndSet", "batch", "list", "entries"].map((name) => [
    name,
    (...args) => need("kv").kv[name](...args),
  ]),
);

export class SkepError extends Error {
  constructor(kind, message, limit, hint) {
    super(message);
    this.name = "SkepError";
    this.kind = kind;
    if (limit) {
      this.limit = limit;
    }
    if (hint) {
      this.hint = hint;
    }
  }
}

export class ToolError extends SkepError {
  constructor(tool, kind, message, more = {}) {
    super(kind, message, more.limit, more.hint);
    this.name = "ToolError";
    this.tool = tool;
    if (more.data !== undefined) {
      this.data = more.data;
    }
  }
}

const unchanged = (what) => () => {
  throw new TypeError(`${what} cannot be changed`);
};

// reader is an object whose members get returns; nothing of it can be set, and it is no promise.
const reader = (what, get) =>
  new Proxy(Object.freeze(Object.create(null)), {
    get: (_, key) => (typeof key !== "string" || key === "then" || key === "toJSON" ? undefined : get(key)),
    set: unchanged(what),
    defineProperty: unchanged(what),
    deleteProperty: unchanged(what),
  });

const passedOn = (part, names) => Object.fromEntries(names.map((name) => [name, (...args) => need(`${part}.${name}()`).tools[part][name](...args)]));

const ofTools = passedOn("tools", ["call", "search", "list", "describe", "change"]);
export const tools = reader("tools", (server) =>
  Object.hasOwn(ofTools, server) ? ofTools[server] : reader(`tools.${server}`, (method) => (args) => ofTools.call(`${server}.${method}`, args)),
);
export const files = Object.freeze(passedOn("files", ["read", "write", "list", "instructions"]));
export const skills = Object.freeze(passedOn("skills", ["list", "load"]));

export const model = makeModel((what, name, make, read = (out) => out) => need(`${what}()`).models.ask(name, make()).then(read));

export const sandbox = makeSandbox(
  (what, name, make, read = (out) => out) => need(`${what}()`).sandbox.ask(name, make()).then(read),
  (tool, args, id) => need("permit()").sandbox.permit(tool, args, id),
);

export function log(...values) {
  console.log(...values);
}
for (const level of ["trace", "debug", "info", "warn", "error"]) {
  log[level] = (...values) => console[level](...values);
}

// durable passes each call on to the instance of the test.
const durable =
  (name) =>
  (...args) =>
    need(`${name}()`).instance[name](...args);

export const agent = durable("agent");
export const child = durable("child");
export const deleteChild = durable("deleteChild");
export const run = durable("run");
export const outside = durable("outside");
export const schedule = durable("schedule");
export const scheduleEvery = durable("scheduleEvery");
export const listSchedules = durable("listSchedules");
export const getSchedule = durable("getSchedule");
export const cancelSchedule = durable("cancelSchedule");
export const setAlarm = durable("setAlarm");
export const getAlarm = durable("getAlarm");
export const deleteAlarm = durable("deleteAlarm");
export const sleepUntil = durable("sleepUntil");
export const waitForEvent = durable("waitForEvent");
export const connections = durable("connections");
export const broadcast = durable("broadcast");

export const step = Object.assign((...args) => need("step()").instance.step(...args), {
  do: (...args) => need("step.do()").instance.step(...args),
  sleep: (name, duration) => sleep(duration),
  sleepUntil: (name, when) => sleepUntil(when),
  waitForEvent: (...args) => need("step.waitForEvent()").instance.stepWaitForEvent(...args),
});

export const sql = Object.assign((...args) => need("sql").instance.sql(...args), {
  raw: (...args) => need("sql.raw()").instance.sqlRaw(...args),
});

export const storage = {
  ...Object.fromEntries(
    ["get", "getMany", "getEntry", "set", "delete", "compareAndSet", "batch", "list", "entries"].map((name) => [
      name,
      (...args) => need("storage").instance.storage[name](...args),
    ]),
  ),
  sql,
};

export class NonRetryableError extends Error {
  constructor(message, name = "NonRetryableError") {
    super(message);
    this.name = name;
  }
  get retryable() {
    return false;
  }
}

export function secret(name) {
  if (typeof name !== "string" || !/^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/.test(name)) {
    throw new TypeError(
      `secret: ${JSON.stringify(name)} is not the name of a secret: it has 1 to 63 of a-z, 0-9, ".", "_" and "-", and begins and ends with a letter or digit`,
    );
  }
  return `{{secret:${name}}}`;
}

export function sleep(duration) {
  return host === undefined ? new Promise((resolve) => setTimeout(resolve, duration)) : host.instance.sleep(duration);
}

export function waitUntil(promise) {
  need("waitUntil()").waitUntil(promise);
}

const functions = {
  emit, agent, child, deleteChild, outside, run, schedule, scheduleEvery, listSchedules, getSchedule, cancelSchedule, setAlarm,
  getAlarm, deleteAlarm, sleep, sleepUntil, waitForEvent, connections, broadcast, waitUntil,
  setState: (next) => need("setState()").instance.setState(next),
};
const values = { config, kv, log, storage, sql, step, tools, files, skills, model, sandbox };
const ids = Object.fromEntries(["key", "name", "runId", "sessionId", "state"].map((name) => [name, () => need(name).instance[name]]));

// context is what a call is given besides its input; Agent has the same members.
export const context = { ...values, ...functions };
for (const [name, get] of Object.entries(ids)) {
  Object.defineProperty(context, name, { get, configurable: true });
}

export class Agent {}
for (const [name, value] of Object.entries(functions)) {
  Object.defineProperty(Agent.prototype, name, { value, writable: true, configurable: true });
}
for (const [name, get] of [...Object.entries(ids), ...Object.entries(values).map(([name, value]) => [name, () => value])]) {
  Object.defineProperty(Agent.prototype, name, {
    get,
    set(value) {
      Object.defineProperty(this, name, { value, writable: true, configurable: true, enumerable: true });
    },
    configurable: true,
  });
}

export const ChatAgent = chatAgent(Agent, {
  model, tools,
  runCode: async (code, names) => need("execute").runCode(code, names),
});
