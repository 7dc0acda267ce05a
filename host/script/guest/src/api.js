// What an author imports from "skep", and what `this` and `ctx` carry.
import { PromiseClass, create, defineProperty, freeze, fromBase64, getOwnPropertyDescriptor, isView, isBuffer, ownKeys, parse, record, setPrototypeOf, stringify, toBase64, viewBytes } from "./primordials.js";
import { callHost, callNow, json, refuseWhileLoading, SkepError, state } from "./host.js";
import { decode, encode } from "./encoding.js";
import { console } from "./console.js";

// config reads the settings of the call under way; it is one object for all calls, so that a module may keep it.
const here = () => {
  refuseWhileLoading("config");
  return state.config;
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
  if (typeof name !== "string" || name === "") throw new TypeError("emit: the first argument is the event's name");
  callNow("emit", `{"name":${stringify(name)},"data":${json(data)}}`);
}

export const log = setPrototypeOf(function log(...args) { console.log(...args); }, Function.prototype);
for (const level of ["debug", "info", "warn", "error", "trace"]) log[level] = console[level];
freeze(log);

// payloadOf turns a value into what travels: its media type and bytes or text.
export function payloadOf(v) {
  if (typeof v === "string") return record({ type: "text/plain; charset=utf-8", text: v, bytes: undefined });
  if (typeof v === "object" && (isBuffer(v) || isView(v))) return record({ type: "application/octet-stream", text: undefined, bytes: viewBytes(v) });
  return record({ type: "application/json", text: json(v), bytes: undefined });
}

const jsonType = /^\s*(application\/json|[^;]*\+json)\s*(;|$)/i;
const textType = /^\s*text\//i;
const test = RegExp.prototype.exec.call.bind(RegExp.prototype.exec);

// valueOf is payloadOf's counterpart for bytes that came in.
function valueOf(type, bytes) {
  if (type === "application/json" || test(jsonType, type)) return parse(decode(bytes));
  return test(textType, type) ? decode(bytes) : bytes;
}

// callAgent calls a function of another agent of the app.
export async function callAgent(name, fn, input) {
  refuseWhileLoading("callAgent");
  if (typeof name !== "string" || typeof fn !== "string") throw new TypeError("callAgent: the names of an agent and of its function are required");
  const p = payloadOf(input);
  const bytes = toBase64(p.bytes ?? encode(p.text)); // put together by hand: JSON.stringify of an object is slow
  const body = `{"agent":${stringify(name)},"function":${stringify(fn)},"type":"${p.type}","input":"${bytes}"}`;
  const answer = parse(await callHost("agent", body));
  return valueOf(answer.type ?? "", answer.output ? fromBase64(answer.output) : new Uint8Array());
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
