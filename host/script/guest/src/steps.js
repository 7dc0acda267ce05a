// What a run does in steps, and what it waits for.
import { PromiseClass, Table, TypeErrorClass, apply, freeze, list, promiseOf, record, stringify, then } from "./primordials.js";
import { ask, call, duration, inRun, pause, pauseUntil, timedOut, timeOf } from "./durable.js";
import { json, refuseWhileLoading, rejected } from "./host.js";
import { report } from "./console.js";

// sleep resolves after a duration: milliseconds, or a text such as "2 days".
export function sleep(d) {
  try {
    refuseWhileLoading("sleep");
    let ms = d;
    if (typeof d === "string") ms = duration("sleep", d);
    else ms = d > 0 ? (inRun() ? duration("sleep", +d) : +d) : 0;
    return pause(ms);
  } catch (e) {
    return rejected(e);
  }
}

const nothing = () => {};

// sleepUntil resolves at a time: a Date, or milliseconds since 1970.
export function sleepUntil(when) {
  try {
    refuseWhileLoading("sleepUntil");
    return pauseUntil(timeOf("sleepUntil", when));
  } catch (e) {
    return rejected(e);
  }
}

// waitForEvent resolves to the data of the next event of that type.
export function waitForEvent(type, options) {
  return then(call("waitForEvent", "run.wait", () => {
    if (typeof type !== "string" || type === "") throw new TypeErrorClass("waitForEvent: the first argument is the event's type");
    const q = record({ type });
    if (options?.timeout !== undefined) q.timeout = duration("waitForEvent: timeout", options.timeout) || 1; // 0 would be none
    return stringify(q);
  }), (out) => {
    if (out.timed_out) throw timedOut(`no event ${stringify(type)} came in ${typeof options.timeout === "string" ? options.timeout : `${options.timeout} ms`}`);
    return out.data;
  });
}

export class NonRetryableError extends Error {
  constructor(message, name = "NonRetryableError") {
    super(message);
    this.name = name;
  }
  get retryable() { return false; }
}

const taken = new Table(); // names of steps

// unique returns a name that no step of this run has had: the second of one name is "name#2".
function unique(name) {
  let own = name;
  for (let n = 2; taken.has(own); n++) own = `${name}#${n}`;
  taken.set(own, true);
  return own;
}

// settingsOf reads { retries: { limit, delay, backoff }, timeout }.
function settingsOf(o) {
  const s = record({ limit: 0, delay: 0, backoff: "exponential", timeout: undefined });
  if (o === undefined || o === null) return s;
  if (typeof o !== "object") throw new TypeErrorClass("step: the options are an object such as { retries: { limit: 3 }, timeout: \"1 minute\" }");
  if (o.timeout !== undefined) s.timeout = duration("step: timeout", o.timeout);
  if (o.retries !== undefined) {
    const r = typeof o.retries === "number" ? { limit: o.retries } : o.retries;
    s.limit = r.limit ?? 5;
    if (typeof s.limit !== "number" || !(s.limit >= 0)) throw new TypeErrorClass("step: retries.limit is a number from 0 up");
    s.delay = typeof r.delay === "function" ? r.delay : duration("step: retries.delay", r.delay ?? 10_000);
    s.backoff = r.backoff ?? "exponential";
    if (s.backoff !== "constant" && s.backoff !== "linear" && s.backoff !== "exponential") throw new TypeErrorClass('step: retries.backoff is "constant", "linear" or "exponential"');
  }
  return s;
}

// delayAfter returns how long to wait after an attempt that failed.
function delayAfter(s, attempt, error) {
  if (typeof s.delay === "function") return duration("step: retries.delay", s.delay(attempt, error));
  const ms = s.delay * (s.backoff === "constant" ? 1 : s.backoff === "linear" ? attempt : 2 ** (attempt - 1));
  return ms < 31_536_000_000 ? ms : 31_536_000_000;
}

// isFinal reports whether an error says that trying again is of no use. A run that was cancelled tries nothing more.
const isFinal = (e) => typeof e === "object" && e !== null && (e.retryable === false || e.name === "NonRetryableError" || e.kind === "cancelled");

function textOf(e) {
  try {
    return typeof e === "object" && e !== null ? `${e.name}: ${e.message}` : `${e}`;
  } catch {
    return "an error that cannot be shown";
  }
}

// within settles as promise does, or rejects after so many milliseconds.
function within(ms, name, promise) {
  if (ms === undefined) return promise;
  return new PromiseClass((resolve, reject) => {
    let over = false, stop;
    const end = (how, v) => {
      if (over) return;
      over = true;
      stop();
      how(v);
    };
    then(pause(ms, (s) => (stop = s)), () => {
      if (over) return;
      over = true;
      reject(timedOut(`step ${stringify(name)} took longer than ${ms} ms`));
    }, (e) => end(reject, e));
    stop ??= nothing;
    then(promiseOf(promise), (v) => end(resolve, v), (e) => end(reject, e));
  });
}

function mark(name, step, attempt, rollback, error) {
  const m = record({ name: step, attempt });
  if (error !== undefined) m.error = error;
  if (rollback) m.rollback = true;
  ask(name, json(m));
}

// attempts makes a step's attempts, until one works or none is left.
async function attempts(name, settings, fn, rollback) {
  for (let attempt = 1; ; attempt++) {
    mark("step.begin", name, attempt, rollback);
    let value, error, failed = false;
    try {
      value = await within(settings.timeout, name, apply(fn, undefined, [{ attempt, step: { name } }]));
    } catch (e) {
      failed = true;
      error = e;
    }
    mark("step.end", name, attempt, rollback, failed ? textOf(error) : undefined);
    if (!failed) return value;
    if (attempt > settings.limit || isFinal(error)) throw error;
    await sleep(delayAfter(settings, attempt, error));
  }
}

const undo = list([]); // what takes back the steps that worked
let undos = 0;

// step does a part of a run under a name, with retries and a timeout where they are asked for.
function doStep(name, options, fn, more) {
  try {
    refuseWhileLoading("step");
    if (typeof options === "function") {
      more = fn;
      fn = options;
      options = undefined;
    }
    if (typeof name !== "string" || name === "") throw new TypeErrorClass("step: the first argument is the step's name");
    if (typeof fn !== "function") throw new TypeErrorClass(`step ${stringify(name)}: a function is required`);
    const settings = settingsOf(options);
    const rollback = more?.rollback ?? options?.rollback;
    if (rollback !== undefined && typeof rollback !== "function") throw new TypeErrorClass(`step ${stringify(name)}: rollback is a function`);
    const undoing = settingsOf(more?.rollbackConfig ?? options?.rollbackConfig);
    const own = unique(name);
    const done = attempts(own, settings, fn, false);
    if (rollback === undefined) return done;
    return then(done, (output) => {
      undo[undos++] = record({ name: own, settings: undoing, rollback, output });
      return output;
    });
  } catch (e) {
    return rejected(e);
  }
}

export const mustUndo = () => undos > 0;

// undoAll takes back the steps that worked, the latest first, after error ended the run. One that cannot be taken back is
// reported and keeps none of the others.
export async function undoAll(error) {
  while (undos > 0) {
    const u = undo[--undos];
    undo[undos] = undefined;
    try {
      await attempts(u.name, u.settings, (ctx) => apply(u.rollback, undefined, [{ ...ctx, output: u.output, error }]), true);
    } catch (e) {
      report(e, `Uncaught (in the rollback of step ${stringify(u.name)})`);
    }
  }
}

export const step = (name, options, fn, more) => doStep(name, options, fn, more);
step.do = step;
step.sleep = (name, d) => sleep(d);
step.sleepUntil = (name, when) => sleepUntil(when);
// waitForEvent has the answer of Cloudflare's Workflows: an object around the data.
step.waitForEvent = async (name, options) => {
  const payload = await waitForEvent(options?.type, options);
  return { type: options.type, payload, timestamp: new Date() };
};
freeze(step);
