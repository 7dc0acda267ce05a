// Outside Skep this module stands in for the built-in one: with a FakeHost from "skep/testing" it works, without one it says so.

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

export function log(...values) {
  console.log(...values);
}
for (const level of ["trace", "debug", "info", "warn", "error"]) {
  log[level] = (...values) => console[level](...values);
}

export function agent(name) {
  return new Proxy(
    {},
    {
      get: (_, method) => (method === "then" ? undefined : (input) => callAgent(name, method, input)),
    },
  );
}

export function secret(name) {
  if (typeof name !== "string" || !/^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/.test(name)) {
    throw new TypeError(
      `secret: ${JSON.stringify(name)} is not the name of a secret: it has 1 to 63 of a-z, 0-9, ".", "_" and "-", and begins and ends with a letter or digit`,
    );
  }
  return `{{secret:${name}}}`;
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export function waitUntil(promise) {
  need("waitUntil()").waitUntil(promise);
}

// context is what a call is given besides its input; Agent has the same members.
export const context = { config, emit, agent, kv, log, waitUntil };

export class Agent {
  get config() {
    return config;
  }
  get kv() {
    return kv;
  }
  get log() {
    return log;
  }
  emit(name, data) {
    emit(name, data);
  }
  agent(name) {
    return agent(name);
  }
  waitUntil(promise) {
    waitUntil(promise);
  }
}
