// Alarms of an instance: calls that it will get at a time, or again and again.
import { ErrorClass, TypeErrorClass, fromDate, record, sliceText, startsWith, stringify, then, toWellFormed } from "./primordials.js";
import { call, ceil, timeOf } from "./durable.js";
import { json } from "./host.js";
import { isCallable } from "./module.js";

// secondsOf returns milliseconds.
function secondsOf(what, v) {
  const ms = typeof v === "number" ? ceil(v * 1000) : -1;
  if (!(ms >= 0) || ms - ms !== 0) throw new TypeErrorClass(`${what} is a number of seconds from 0 up`);
  return ms;
}

// timing writes when an alarm is due into q, package abi's AlarmSet.
function timing(q, when) {
  if (typeof when === "number") q.delay = secondsOf("schedule: a delay", when) || 1; // 0 would be none
  else if (typeof when === "string") q.cron = when;
  else if (typeof when === "object" && when !== null) {
    if (typeof when.getTime === "function") q.at = timeOf("schedule", when);
    else if (when.at !== undefined) q.at = timeOf("schedule", when.at);
    else if (when.delay !== undefined) q.delay = secondsOf("schedule: delay", when.delay) || 1;
    else if (when.every !== undefined) q.every = secondsOf("schedule: every", when.every);
    else if (when.cron !== undefined) {
      q.cron = `${when.cron}`;
      if (when.zone !== undefined) q.zone = `${when.zone}`;
    }
  }
  if (q.at === undefined && q.delay === undefined && q.every === undefined && q.cron === undefined) {
    throw new TypeErrorClass("schedule: when is a number of seconds, a Date, a cron line, or one of { delay }, { at }, { every } and { cron, zone }");
  }
}

// retryOf reads { attempts, delay, maxDelay }, in seconds.
function retryOf(r) {
  const out = record({});
  if (r.attempts !== undefined) out.attempts = r.attempts;
  if (r.delay !== undefined) out.delay = secondsOf("schedule: retry.delay", r.delay);
  if (r.maxDelay !== undefined) out.max_delay = secondsOf("schedule: retry.maxDelay", r.maxDelay);
  return out;
}

// shown is an alarm as authors see it: its time is a Date, what it repeats after are seconds.
function shown(a) {
  const s = { name: a.name, method: a.method, at: fromDate(a.at) };
  if (a.payload !== undefined) s.payload = a.payload;
  if (a.every) s.every = a.every / 1000;
  if (a.cron) s.cron = a.cron;
  if (a.zone) s.zone = a.zone;
  if (a.attempt) s.attempt = a.attempt;
  if (a.dead) s.dead = true;
  if (a.error) s.error = a.error;
  return s;
}

// schedule has a method of the agent's called, once or again and again.
export function schedule(when, method, payload, options) {
  return then(call("schedule", "alarm.set", () => {
    method ??= "onAlarm";
    if (typeof method !== "string") throw new TypeErrorClass("schedule: the second argument is the name of a method");
    if (!isCallable(method)) throw new ErrorClass(`schedule: the agent has no method ${stringify(method)}`);
    const q = record({ method });
    timing(q, when);
    if (payload !== undefined) q.payload = payload;
    const o = options ?? {};
    if (o.name !== undefined) q.name = `${o.name}`;
    if (o.keep !== undefined) q.keep = !!o.keep;
    if (o.overlap !== undefined) q.overlap = o.overlap;
    if (o.missed !== undefined) q.missed = o.missed;
    if (o.retry !== undefined) q.retry = retryOf(o.retry);
    return json(q);
  }), shown);
}

export function scheduleEvery(seconds, method, payload, options) {
  return schedule({ every: seconds }, method, payload, options);
}

const page = (after, limit) => call("listSchedules", "alarm.list", () => stringify(record({ after, limit })));

// listSchedules returns all of them in the order of their names.
export async function listSchedules() {
  const all = [];
  for (let after; ; ) {
    const got = await page(after, 1000);
    for (let i = 0; i < got.alarms?.length; i++) all[all.length] = shown(got.alarms[i]);
    if (!got.after) return all;
    after = got.after;
  }
}

// found returns the alarm of that name as the host shows it, or undefined. A list begins behind a name: here, behind what the
// name begins with, first of the living ones and then of the dead.
async function found(name) {
  if (typeof name !== "string") throw new TypeErrorClass("getSchedule: the name of a schedule is a text");
  let before = sliceText(name, 0, -1);
  if (toWellFormed(before) !== before) before = sliceText(name, 0, -2);
  return (await foundIn("a/", before, name, false)) ?? foundIn("d/", before, name, true);
}

async function foundIn(family, before, name, dead) {
  for (let after = family + before; ; ) {
    const got = await page(after, 100);
    for (let i = 0; i < got.alarms?.length; i++) {
      const a = got.alarms[i];
      if ((a.dead === true) !== dead || !startsWith(a.name, before)) return undefined;
      if (a.name === name) return a;
    }
    if (!got.after) return undefined;
    after = got.after;
  }
}

export async function getSchedule(name) {
  const a = await found(name);
  return a === undefined ? undefined : shown(a);
}

// cancelSchedule resolves to whether it was there.
export function cancelSchedule(name) {
  return then(call("cancelSchedule", "alarm.cancel", () => {
    if (typeof name !== "string") throw new TypeErrorClass("cancelSchedule: the name of a schedule is a text");
    return stringify(record({ name }));
  }), (out) => out.cancelled === true);
}

// The one alarm that Durable Objects have.
const ALARM = "alarm";

export function setAlarm(when) {
  return then(call("setAlarm", "alarm.set", () => {
    if (!isCallable("onAlarm")) throw new ErrorClass("setAlarm: the agent has no method onAlarm");
    return stringify(record({ name: ALARM, method: "onAlarm", at: timeOf("setAlarm", when) }));
  }), () => {});
}

export async function getAlarm() {
  const a = await found(ALARM);
  return a === undefined || a.dead ? null : a.at;
}

export function deleteAlarm() {
  return then(cancelSchedule(ALARM), () => {});
}
