// The calls of durable code, as package abi names and spells them, and who the code is.
import { PromiseClass, apply, dateNow, defineProperty, freeze, ownKeys, parse, record, sliceText } from "./primordials.js";
import "./timers.js";
import { callHost, errorOf, host, refuseWhileLoading, rejected, SkepError } from "./host.js";

const startCall = (id, name, body) => host.call(id, name, body);

// call makes one that is answered later; make writes its body as JSON and may throw. what names the author's function.
export function call(what, name, make) {
  try {
    refuseWhileLoading(what);
    return callHost(startCall, undefined, undefined, undefined, name, make());
  } catch (e) {
    return rejected(e);
  }
}

// ask makes one that is answered at once, and returns the answer's text.
export function ask(name, body) {
  const answer = host.ask(name, body);
  if (answer[0] === "!") throw errorOf(sliceText(answer, 1));
  return answer;
}

let me; // the same for all of a call's lives
let nobody = false; // the host knows nothing of such

// self says who the code is: { agent, key, session, run, version }.
export function self() {
  refuseWhileLoading("who the agent is");
  return (me ??= parse(ask("self", "")));
}

// inRun reports whether this is a run of an instance, whose waits the host keeps.
export function inRun() {
  if (nobody) return false;
  try {
    const s = self();
    return !!s.key && !!s.run;
  } catch {
    nobody = true;
    return false;
  }
}

// getters puts getters on target. A subclass or an object may have a member of the same name.
export function getters(target, all) {
  const names = ownKeys(all);
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    defineProperty(target, name, record({
      get: all[name],
      set(value) { defineProperty(this, name, record({ value, writable: true, configurable: true, enumerable: true })); },
      configurable: true,
    }));
  }
}

// deepFreeze freezes a value of JSON.
export function deepFreeze(v) {
  if (typeof v === "object" && v !== null) {
    const keys = ownKeys(v);
    for (let i = 0; i < keys.length; i++) deepFreeze(v[keys[i]]);
    freeze(v);
  }
  return v;
}

// timeOf returns a time in milliseconds since 1970: of a Date, or of such a number.
export function timeOf(what, when) {
  let ms = when;
  if (typeof when === "object" && when !== null && typeof when.getTime === "function") ms = when.getTime();
  if (typeof ms !== "number" || ms - ms !== 0) throw new TypeError(`${what}: a time is a valid Date, or milliseconds since 1970`);
  ms = ceil(ms);
  return ms < 1 ? 1 : ms; // 0 would be none
}

export const ceil = Math.ceil;

const units = record({ millisecond: 1, second: 1000, minute: 60_000, hour: 3_600_000, day: 86_400_000, week: 604_800_000, month: 2_592_000_000, year: 31_536_000_000 });
const spelled = /^([0-9]+(?:\.[0-9]+)?) ?(millisecond|second|minute|hour|day|week|month|year)s?$/;
const exec = RegExp.prototype.exec;

// duration returns milliseconds: of such a number, or of a text like "10 seconds". A month has 30 days and a year 365.
export function duration(what, v) {
  let ms = v;
  if (typeof v === "string") {
    const m = apply(exec, spelled, [v]);
    ms = m === null ? undefined : +m[1] * units[m[2]];
  }
  if (typeof ms !== "number" || !(ms >= 0) || ms - ms !== 0) {
    throw new TypeError(`${what}: a duration is a number of milliseconds from 0 up, or a text such as "10 seconds" or "2 days"`);
  }
  return ceil(ms);
}

// timedOut is the error of what took longer than its author allows.
export function timedOut(message) {
  const e = new SkepError("unavailable", message);
  defineProperty(e, "name", record({ value: "TimeoutError", configurable: true, writable: true }));
  return e;
}

// pause returns a promise that resolves after ms milliseconds. In a run of an instance the host keeps the time, and no cell is
// needed meanwhile. stop, when given, gets a function that ends the wait, after which the promise never settles.
export function pause(ms, stop) {
  if (ms > 0 && inRun()) {
    const body = `{"for":${ms}}`;
    return callHost((id) => host.call(id, "run.sleep", body), undefined, stop);
  }
  return new PromiseClass((resolve) => {
    const id = setTimer(resolve, ms);
    stop?.(() => clearTimer(id));
  });
}

// pauseUntil does so until a time.
export function pauseUntil(at) {
  if (inRun()) return call("sleepUntil", "run.sleep", () => `{"until":${at}}`);
  const left = at - dateNow();
  return pause(left > 0 ? left : 0);
}

const setTimer = globalThis.setTimeout, clearTimer = globalThis.clearTimeout;
