// Durations and steps of an agent under test, as Skep has them.

import { SkepError } from "./index.js";

const units = {
  millisecond: 1, second: 1000, minute: 60_000, hour: 3_600_000, day: 86_400_000, week: 604_800_000, month: 2_592_000_000, year: 31_536_000_000,
};

// duration returns milliseconds: of such a number, or of a text like "10 seconds".
export function duration(what, value) {
  let ms = value;
  if (typeof value === "string") {
    const m = /^([0-9]+(?:\.[0-9]+)?) ?(millisecond|second|minute|hour|day|week|month|year)s?$/.exec(value);
    ms = m === null ? undefined : Number(m[1]) * units[m[2]];
  }
  if (!Number.isFinite(ms) || ms < 0) {
    throw new TypeError(`${what}: a duration is a number of milliseconds from 0 up, or a text such as "10 seconds" or "2 days"`);
  }
  return Math.ceil(ms);
}

export function timedOut(message) {
  return Object.assign(new SkepError("unavailable", message), { name: "TimeoutError" });
}

function settingsOf(options = {}) {
  const { retries, timeout } = options ?? {};
  const r = typeof retries === "number" ? { limit: retries } : retries;
  const backoff = r?.backoff ?? "exponential";
  if (!["constant", "linear", "exponential"].includes(backoff)) {
    throw new TypeError('step: retries.backoff is "constant", "linear" or "exponential"');
  }
  return {
    limit: r === undefined ? 0 : (r.limit ?? 5),
    delay: typeof r?.delay === "function" ? r.delay : duration("step: retries.delay", r?.delay ?? 10_000),
    backoff,
    timeout: timeout === undefined ? undefined : duration("step: timeout", timeout),
  };
}

function delayAfter(s, attempt, error) {
  if (typeof s.delay === "function") {
    return duration("step: retries.delay", s.delay(attempt, error));
  }
  return s.delay * { constant: 1, linear: attempt, exponential: 2 ** (attempt - 1) }[s.backoff];
}

const isFinal = (e) => e?.retryable === false || e?.name === "NonRetryableError" || e?.kind === "cancelled";

// Steps are those of one call. pause waits (milliseconds, signal); record is told of each attempt.
export class Steps {
  #names = new Set();
  #undo = [];

  constructor(pause, record) {
    this.pause = pause;
    this.record = record;
  }

  async do(name, options, fn, more) {
    if (typeof options === "function") {
      [more, fn, options] = [fn, options, undefined];
    }
    if (typeof name !== "string" || name === "") {
      throw new TypeError("step: the first argument is the step's name");
    }
    if (typeof fn !== "function") {
      throw new TypeError(`step ${JSON.stringify(name)}: a function is required`);
    }
    const settings = settingsOf(options);
    const rollback = more?.rollback ?? options?.rollback;
    const undoing = settingsOf(more?.rollbackConfig ?? options?.rollbackConfig);
    let own = name;
    for (let n = 2; this.#names.has(own); n++) {
      own = `${name}#${n}`;
    }
    this.#names.add(own);
    const output = await this.#attempts(own, settings, fn, false);
    if (rollback !== undefined) {
      this.#undo.push({ name: own, settings: undoing, rollback, output });
    }
    return output;
  }

  async #attempts(name, settings, fn, rollback) {
    for (let attempt = 1; ; attempt++) {
      const mark = rollback ? { name, attempt, rollback } : { name, attempt };
      try {
        const value = await this.#within(settings.timeout, name, async () => fn({ attempt, step: { name } }));
        this.record(mark);
        return value;
      } catch (e) {
        this.record({ ...mark, error: `${e?.name}: ${e?.message}` });
        if (attempt > settings.limit || isFinal(e)) {
          throw e;
        }
        await this.pause(delayAfter(settings, attempt, e));
      }
    }
  }

  async #within(ms, name, fn) {
    if (ms === undefined) {
      return fn();
    }
    const over = new AbortController();
    const late = this.pause(ms, over.signal).then(() => {
      throw timedOut(`step ${JSON.stringify(name)} took longer than ${ms} ms`);
    });
    try {
      return await Promise.race([fn(), late]);
    } finally {
      over.abort();
    }
  }

  // undoAll takes back what was done, the latest first.
  async undoAll(error) {
    for (let u = this.#undo.pop(); u !== undefined; u = this.#undo.pop()) {
      try {
        await this.#attempts(u.name, u.settings, (ctx) => u.rollback({ ...ctx, output: u.output, error }), true);
      } catch (e) {
        console.error(`Uncaught (in the rollback of step ${JSON.stringify(u.name)})`, e);
      }
    }
  }
}
