// What an author imports from "skep", and what `this` and `ctx` carry.
import { TypeErrorClass, create, defineProperty, freeze, getOwnPropertyDescriptor, match, ownKeys, record, setPrototypeOf } from "./primordials.js";
import { errorOf, host, json, refuseWhileLoading, SkepError, settings } from "./host.js";
import { console } from "./console.js";
import { agent, callAgent, child, deleteChild, outside, run, runCode } from "./calls.js";
import { getters, self } from "./durable.js";
import { files, skills } from "./files.js";
import { kv } from "./kv.js";
import { model } from "./model.js";
import { born } from "./module.js";
import { cancelSchedule, deleteAlarm, getAlarm, getSchedule, listSchedules, schedule, scheduleEvery, setAlarm } from "./schedule.js";
import { sandbox } from "./sandbox.js";
import { getState, setState } from "./shared.js";
import { broadcast, connections } from "./sockets.js";
import { NonRetryableError, sleep, sleepUntil, step, waitForEvent } from "./steps.js";
import { sql, storage } from "./storage.js";
import { ToolError, tools } from "./tools.js";
import { chatAgent } from "../../../../sdk/js/chat.js";

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

// What the author's code has of the call and of the instance that it is in, as getters: on Agent, and on the context.
const ofCall = {
  config: () => config,
  kv: () => kv,
  log: () => log,
  key: () => self().key || undefined,
  name: () => self().agent,
  runId: () => self().run || undefined,
  sessionId: () => self().session || undefined,
  storage: () => storage,
  sql: () => sql,
  state: getState,
  step: () => step,
  tools: () => tools,
  files: () => files,
  skills: () => skills,
  model: () => model,
  sandbox: () => sandbox,
};

// setShared is setState for authors. What an async onStateChanged still does, the call goes on for.
const setShared = (waitUntil) => (next) => {
  const more = setState(next);
  if (typeof more?.then === "function") waitUntil(more);
};

// functionsOf returns what authors call. They need no `this`.
function functionsOf(waitUntil) {
  return {
    waitUntil, emit, agent, child, deleteChild, outside, run, setState: setShared(waitUntil), schedule, scheduleEvery, listSchedules, getSchedule, cancelSchedule,
    setAlarm, getAlarm, deleteAlarm, sleep, sleepUntil, waitForEvent, connections, broadcast,
  };
}

function methods(target, all) {
  const names = ownKeys(all);
  for (let i = 0; i < names.length; i++) defineProperty(target, names[i], record({ value: all[names[i]], writable: true, configurable: true }));
}

// Agent is the class that agents extend. One is made for each cell.
export class Agent {
  constructor() { born(this); }
}

// ChatAgent is the class of agents that chat.
export const ChatAgent = chatAgent(Agent, { model, tools, runCode });

// surround puts what belongs to a call where authors look for it, and returns the context: what functions get as their last
// argument. A cell makes one call, so there is one.
export function surround(waitUntil) {
  const all = functionsOf(waitUntil);
  methods(Agent.prototype, all);
  getters(Agent.prototype, ofCall);
  const context = { config, kv, log, storage, sql, step, tools, files, skills, model, sandbox, ...all, passThroughOnException() {} };
  getters(context, { key: ofCall.key, name: ofCall.name, runId: ofCall.runId, sessionId: ofCall.sessionId, state: ofCall.state });
  return context;
}

// extend gives an object with functions what Agent has.
export function extend(o) {
  const all = Agent.prototype;
  const names = ownKeys(all);
  for (let i = 0; i < names.length; i++) {
    if (names[i] !== "constructor" && !(names[i] in o)) defineProperty(o, names[i], getOwnPropertyDescriptor(all, names[i]));
  }
}

const secretName = /^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

// secret returns the placeholder of a secret, which the host replaces in requests on their way out.
export function secret(name) {
  if (typeof name !== "string" || match(secretName, name) === null) {
    throw new TypeErrorClass(`secret: ${json(name)} is not the name of a secret: it has 1 to 63 of a-z, 0-9, ".", "_" and "-", and begins and ends with a letter or digit`);
  }
  return `{{secret:${name}}}`;
}

export const api = freeze(record({
  Agent, ChatAgent, NonRetryableError, SkepError, ToolError, agent, broadcast, callAgent, cancelSchedule, child, config, connections, deleteAlarm,
  deleteChild, emit, files, getAlarm, getSchedule, kv, listSchedules, log, model, outside, run, sandbox, schedule, scheduleEvery, secret, setAlarm, skills,
  sleep, sleepUntil, sql, step, storage, tools, waitForEvent,
}));
