// The instance of an agent under test: what Skep keeps of one, in memory.

import { SkepError } from "./index.js";
import { FakeKV } from "./testing-kv.js";
import { duration, timedOut } from "./testing-steps.js";

const copy = (value) => (value === undefined ? undefined : JSON.parse(JSON.stringify(value)));

function freeze(value) {
  if (typeof value === "object" && value !== null) {
    Object.values(value).forEach(freeze);
    Object.freeze(value);
  }
  return value;
}

const seconds = (n) => Math.ceil(n * 1000);

function timeOf(what, when) {
  const ms = when instanceof Date ? when.getTime() : when;
  if (!Number.isFinite(ms)) {
    throw new TypeError(`${what}: a time is a valid Date, or milliseconds since 1970`);
  }
  return ms;
}

// dueOf returns what of an alarm says when it is due.
function dueOf(when, now) {
  if (typeof when === "number") return { at: now + seconds(when) };
  if (typeof when === "string") return { cron: when };
  if (when instanceof Date) return { at: timeOf("schedule", when) };
  if (when?.at !== undefined) return { at: timeOf("schedule", when.at) };
  if (when?.delay !== undefined) return { at: now + seconds(when.delay) };
  if (when?.every !== undefined) return { at: now + seconds(when.every), every: when.every };
  if (when?.cron !== undefined) return { cron: when.cron, ...(when.zone && { zone: when.zone }) };
  throw new TypeError("schedule: when is a number of seconds, a Date, a cron line, or one of { delay }, { at }, { every } and { cron, zone }");
}

// FakeConnection is a client's connection, from both sides: of the agent's, it has what a Connection has.
class AgentConnection {
  #client;
  #instance;
  constructor(client, instance) {
    this.#client = client;
    this.#instance = instance;
  }
  get id() { return this.#client.id; }
  get tags() { return [...this.#client.tags]; }
  get attachment() { return this.#client.attachment; }
  get state() { return this.#client.attachment; }
  async send(data) { this.#instance.deliver([this.#client], data); }
  async close(code = 1005, reason = "") {
    this.#client.closed = { code, reason };
    this.#instance.clients.delete(this.#client.id);
  }
  async attach(value) { this.#client.attachment = copy(value ?? null); }
  setState(value) { return this.attach(value); }
  async setTags(tags) { this.#client.tags = [...tags]; }
  toJSON() { return { id: this.id, tags: this.tags, attachment: this.attachment }; }
}

export class FakeInstance {
  #host;
  clients = new Map();
  alarms = new Map();
  shared = { version: 0, value: undefined };
  waiters = []; // of events: { type, resolve }
  arrived = []; // events that nobody has taken
  runs = new Map();

  constructor(host, { key, name, storage, state, sql }) {
    this.#host = host;
    this.key = key;
    this.name = name;
    this.storage = new FakeKV(storage);
    if (state !== undefined) this.shared = { version: 1, value: freeze(copy(state)) };
    this.database = sql;
  }

  // save returns what undoes all that comes after.
  save() {
    const kept = [this.storage.save(), this.shared, new Map(this.alarms)];
    return () => {
      this.storage.restore(kept[0]);
      this.shared = kept[1];
      this.alarms = kept[2];
    };
  }

  get runId() { return this.#host.frame?.run; }
  get sessionId() { return this.#host.frame?.session; }
  get state() {
    if (this.shared.version > 0) return this.shared.value;
    const initial = this.#host.member("initialState");
    return freeze(copy(typeof initial === "function" ? initial() : initial));
  }
  setState(next, source = "server") {
    if (JSON.stringify(next) === undefined) throw new TypeError(`setState: ${typeof next} has no JSON form`);
    const value = freeze(copy(next));
    this.#host.member("validateStateChange")?.(value, source);
    this.shared = { version: this.shared.version + 1, value };
    const more = this.#host.member("onStateChanged")?.(value, source);
    if (typeof more?.then === "function") this.#host.waitUntil(more);
  }

  async sql(query, ...params) { return this.#query(query, params).rows; }
  async sqlRaw(query, ...params) {
    const { rows, columns, changes } = this.#query(query, params);
    return { columns, rows: rows.map((r) => columns.map((c) => r[c])), changes };
  }
  #query(query, params) {
    if (this.database === undefined) throw new SkepError("unavailable", "this test has no database: give FakeHost({ sql })");
    const out = this.database(Array.isArray(query) ? query.join("?") : query, params.map((p) => (typeof p === "boolean" ? Number(p) : p)));
    const rows = Array.isArray(out) ? out : out.rows;
    return { rows, columns: out.columns ?? Object.keys(rows[0] ?? {}), changes: out.changes ?? 0 };
  }

  async schedule(when, method = "onAlarm", payload, options = {}) {
    if (typeof this.#host.member(method) !== "function") throw new Error(`schedule: the agent has no method ${JSON.stringify(method)}`);
    const due = dueOf(when, this.#host.now);
    const name = options.name ?? JSON.stringify([method, due, payload]);
    if (!(options.keep && this.alarms.has(name))) {
      this.alarms.set(name, { name, method, ...due, ...(payload !== undefined && { payload: copy(payload) }), agent: this.#host.frame.agent });
    }
    return this.#shown(this.alarms.get(name));
  }
  #shown({ agent, at, ...alarm }) { return { ...alarm, at: new Date(at ?? NaN) }; }
  scheduleEvery(every, method, payload, options) { return this.schedule({ every }, method, payload, options); }
  async listSchedules() { return [...this.alarms.keys()].sort().map((name) => this.#shown(this.alarms.get(name))); }
  async getSchedule(name) { return this.alarms.has(name) ? this.#shown(this.alarms.get(name)) : undefined; }
  async cancelSchedule(name) { return this.alarms.delete(name); }
  async setAlarm(when) { await this.schedule({ at: when }, "onAlarm", undefined, { name: "alarm" }); }
  async getAlarm() { return this.alarms.get("alarm")?.at ?? null; }
  async deleteAlarm() { this.alarms.delete("alarm"); }

  // pause waits by the test's clock in a run, else by the real one.
  pause(ms, signal) {
    if (ms > 0 && this.runId !== undefined) return this.#host.clock.at(this.#host.now + ms, signal);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      signal?.addEventListener("abort", () => clearTimeout(timer));
    });
  }
  sleep(d) { return this.pause(typeof d === "string" ? duration("sleep", d) : d > 0 ? d : 0); }
  sleepUntil(when) { return this.pause(Math.max(0, timeOf("sleepUntil", when) - this.#host.now)); }

  async waitForEvent(type, { timeout } = {}) {
    const i = this.arrived.findIndex((e) => e.type === type);
    if (i >= 0) return this.arrived.splice(i, 1)[0].data;
    const over = new AbortController();
    const waiter = { type };
    const event = new Promise((resolve) => (waiter.resolve = resolve));
    this.waiters.push(waiter);
    if (timeout === undefined) return event;
    const late = this.pause(duration("waitForEvent: timeout", timeout), over.signal).then(() => {
      throw timedOut(`no event ${JSON.stringify(type)} came in ${typeof timeout === "string" ? timeout : `${timeout} ms`}`);
    });
    try {
      return await Promise.race([event, late]);
    } finally {
      over.abort();
      this.waiters = this.waiters.filter((w) => w !== waiter);
    }
  }
  async stepWaitForEvent(name, options) {
    return { type: options.type, payload: await this.waitForEvent(options.type, options), timestamp: new Date(this.#host.now) };
  }
  step(...args) { return this.#host.frame.steps.do(...args); }
  async outside(work) {
    if (typeof work !== "function") throw new TypeError("outside: the argument is a function");
    this.#host.commit();
    return work();
  }

  agent(name, key, options) { return this.#standIn(name, key, options?.send === true); }
  child(name, key, options) {
    return typeof key === "string" ? this.#standIn(name, key, options?.send === true) : this.#standIn(this.name, name, key?.send === true);
  }
  async deleteChild(name, key) { this.#host.deleted.push(key === undefined ? { agent: this.name, key: name } : { agent: name, key }); }
  #standIn(name, key, send) {
    return new Proxy({}, {
      get: (_, method) => {
        if (typeof method !== "string" || method === "then" || method === "toJSON") return undefined;
        return async (input) => {
          if (!send) return this.#host.callAgent(name, method, input, key);
          this.#host.sent.push({ agent: name, ...(key !== undefined && { key }), method, input: copy(input) });
        };
      },
    });
  }
  async run(fn, input, options = {}) {
    const { id, result } = this.#host.start(this.#host.frame.agent, fn, input, options);
    return { id, sessionId: id, result: () => result };
  }

  async connections(tag) {
    return [...this.clients.values()].filter((c) => tag === undefined || c.tags.includes(tag)).map((c) => this.connection(c));
  }
  connection(client) { return new AgentConnection(client, this); }
  async broadcast(data, { tag, except = [] } = {}) {
    const out = [except].flat().map((c) => (typeof c === "string" ? c : c.id));
    this.deliver([...this.clients.values()].filter((c) => (tag === undefined || c.tags.includes(tag)) && !out.includes(c.id)), data);
  }
  deliver(clients, data) {
    const bytes = data instanceof ArrayBuffer || ArrayBuffer.isView(data);
    const frame = typeof data === "string" ? data : bytes ? new Uint8Array(data.buffer?.slice(data.byteOffset, data.byteOffset + data.byteLength) ?? data.slice(0)) : JSON.stringify(data);
    if (frame === undefined) throw new TypeError(`send: ${typeof data} has no JSON form`);
    for (const c of clients) {
      if (this.#host.frame?.frames) this.#host.frame.frames.push([c, frame]);
      else c.frames.push(frame);
    }
  }
}
