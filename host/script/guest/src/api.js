// What an author imports from "skep", and what `this` and `ctx` carry.
import { PromiseClass, TypeErrorClass, create, defineProperty, freeze, getOwnPropertyDescriptor, match, ownKeys, record, setPrototypeOf } from "./primordials.js";
import { errorOf, host, json, newest, openCall, refuseWhileLoading, rejected, SkepError, settings } from "./host.js";
import { console } from "./console.js";
import { bodyOf, formOf } from "./forms.js";
import { kv } from "./kv.js";

// config reads the settings of the call under way; it is one object for all calls, so that a module may keep it.
const here = () => {
  refuseWhileLoading("config");
  return settings();
};
const readOnly = () => {
  throw new TypeError("config cannot be changed");
};
export const config = new Proxy(create(null), setPrototypeOf({
  get: (_, k) => here()[k],
  has: (_, k) => k in here(),
  ownKeys: () => ownKeys(here()),
  getOwnPropertyDescriptor: (_, k) => {
    const d = getOwnPropertyDescriptor(here(), k);
    if (d !== undefined) d.configurable = true; // for a proxy may not say otherwise of what its target has not
    return d;
  },
  set: readOnly,
  defineProperty: readOnly,
  deleteProperty: readOnly,
  setPrototypeOf: readOnly,
}, null));

// emit puts an event of the agent's own into the session's log.
export function emit(name, data) {
  refuseWhileLoading("emit");
  if (typeof name !== "string" || name === "") throw new TypeErrorClass("emit: the first argument is the event's name");
  const failed = host.emit(name, json(data));
  if (failed !== undefined) throw errorOf(failed);
}

export const log = setPrototypeOf(function log(...args) { console.log(...args); }, Function.prototype);
for (const level of ["debug", "info", "warn", "error", "trace"]) log[level] = console[level];
freeze(log);

// callAgent calls a function of another agent of the app.
export function callAgent(name, fn, input) {
  try {
    refuseWhileLoading("callAgent");
    if (typeof name !== "string" || typeof fn !== "string") throw new TypeErrorClass("callAgent: the names of an agent and of its function are required");
    const form = formOf(input);
    const body = bodyOf(form, input);
    host.agent(openCall(), name, fn, form, body);
    return newest;
  } catch (e) {
    return rejected(e);
  }
}

// agent returns a stand-in for another agent: its methods call that agent's functions.
export function agent(name) {
  return new Proxy(create(null), setPrototypeOf({
    get: (_, method) => (typeof method !== "string" || method === "then" || method === "toJSON" ? undefined : (input) => callAgent(name, method, input)),
  }, null));
}

// Agent is the class that agents extend. One is made for each cell.
export class Agent {
  #waitUntil;
  constructor(ctx) {
    this.#waitUntil = ctx?.waitUntil;
  }
  get config() { return config; }
  get log() { return log; }
  get kv() { return kv; }
  emit(name, data) { emit(name, data); }
  agent(name) { return agent(name); }
  waitUntil(promise) { this.#waitUntil?.(promise); }
}
for (const name of ["config", "kv", "log"]) {
  const { get } = getOwnPropertyDescriptor(Agent.prototype, name);
  // A subclass may have a field of the same name.
  defineProperty(Agent.prototype, name, {
    get,
    set(value) { defineProperty(this, name, { value, writable: true, configurable: true, enumerable: true }); },
    configurable: true,
  });
}

// sleep resolves after ms milliseconds.
export function sleep(ms) {
  return new PromiseClass((resolve) => setTimeout(resolve, ms));
}

const secretName = /^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

// secret returns the placeholder of a secret, which the host replaces in requests on their way out.
export function secret(name) {
  if (typeof name !== "string" || match(secretName, name) === null) {
    throw new TypeErrorClass(`secret: ${json(name)} is not the name of a secret: it has 1 to 63 of a-z, 0-9, ".", "_" and "-", and begins and ends with a letter or digit`);
  }
  return `{{secret:${name}}}`;
}

export const api = freeze(record({ Agent, SkepError, agent, callAgent, config, emit, kv, log, secret, sleep }));
