// What an author imports from "skep", and what `this` and `ctx` carry.
import { ObjectPrototype, PromiseClass, TypeErrorClass, create, defineProperty, freeze, getOwnPropertyDescriptor, getPrototypeOf, isArray, isBuffer, isView, ownKeys, record, setPrototypeOf, toWellFormed, viewBytes } from "./primordials.js";
import { errorOf, host, json, newest, openCall, refuseWhileLoading, rejected, SkepError, settings } from "./host.js";
import { console } from "./console.js";

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
  getOwnPropertyDescriptor: (_, k) => getOwnPropertyDescriptor(here(), k),
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

// The forms in which a value travels.
export const JSON_FORM = 0, TEXT_FORM = 1, BYTES_FORM = 2, OTHER_FORM = 3; // bytes of a type that is said

export function formOf(v) {
  if (typeof v === "string") return TEXT_FORM;
  if (typeof v !== "object" || v === null || getPrototypeOf(v) === ObjectPrototype || isArray(v)) return JSON_FORM; // which is quicker
  return isBuffer(v) || isView(v) ? BYTES_FORM : JSON_FORM;
}

// bodyOf returns the text or the bytes of v in that form.
export function bodyOf(form, v) {
  return form === JSON_FORM ? json(v) : form === TEXT_FORM ? toWellFormed(v) : viewBytes(v);
}

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
  emit(name, data) { emit(name, data); }
  agent(name) { return agent(name); }
  waitUntil(promise) { this.#waitUntil?.(promise); }
}
for (const name of ["config", "log"]) {
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

export const api = freeze(record({ Agent, SkepError, agent, callAgent, config, emit, log, sleep }));
