// The state of an agent under test: what kv does in Skep, over a Map, without the bounds of a grant.

import { SkepError } from "./index.js";

const utf8 = new TextEncoder();

// compare puts keys in the order of their UTF-8 bytes, in which Skep lists them.
function compare(a, b) {
  const x = utf8.encode(a);
  const y = utf8.encode(b);
  for (let i = 0; i < x.length && i < y.length; i++) {
    if (x[i] !== y[i]) {
      return x[i] - y[i];
    }
  }
  return x.length - y.length;
}

// copy is a value as it comes back: only what JSON carries, or the bytes.
function copy(value) {
  if (value instanceof ArrayBuffer) {
    return new Uint8Array(value.slice(0));
  }
  if (ArrayBuffer.isView(value)) {
    return new Uint8Array(value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength));
  }
  const text = JSON.stringify(value);
  if (text === undefined) {
    throw new TypeError(`kv: ${typeof value} has no JSON form; kv.delete removes a key`);
  }
  return JSON.parse(text);
}

export class FakeKV {
  #entries = new Map();
  #version = 0;

  constructor(state = {}) {
    for (const [key, value] of Object.entries(state)) {
      this.#commit([{ op: "set", key, value }]);
    }
  }

  #commit(edits) {
    for (const { key, op, ifVersion } of edits) {
      if (typeof key !== "string" || key === "") {
        throw new SkepError("invalid", "a state key is empty");
      }
      const version = this.#entries.get(key)?.version ?? 0;
      if (op === "check" && ifVersion === undefined) {
        throw new SkepError("invalid", `the check of state key ${JSON.stringify(key)} names no version`);
      }
      if (ifVersion !== undefined && ifVersion !== version) {
        throw new SkepError("conflict", `state key ${JSON.stringify(key)} has version ${version}, not ${ifVersion}`);
      }
    }
    const next = new Map(this.#entries);
    let changed = false;
    for (const { op, key, value } of edits) {
      if (op === "set") {
        next.set(key, { key, value: copy(value), version: this.#version + 1 });
        changed = true;
      } else if (op === "delete") {
        changed = next.delete(key) || changed;
      } else if (op !== "check") {
        throw new TypeError('kv.batch: the op of an edit must be "set", "delete" or "check"');
      }
    }
    this.#entries = next;
    if (changed) {
      this.#version++;
    }
    return this.#version;
  }

  // save returns what restore takes, to undo what came between.
  save() {
    return [this.#entries, this.#version];
  }

  restore([entries, version]) {
    this.#entries = entries;
    this.#version = version;
  }

  async getEntry(key) {
    const e = this.#entries.get(key);
    return e && { ...e, value: copy(e.value) };
  }

  async get(key) {
    return (await this.getEntry(key))?.value;
  }

  async getMany(keys) {
    return Promise.all(keys.map((key) => this.get(key)));
  }

  async set(key, value, options) {
    return this.#commit([{ op: "set", key, value, ifVersion: options?.ifVersion }]);
  }

  async delete(key, options) {
    this.#commit([{ op: "delete", key, ifVersion: options?.ifVersion }]);
  }

  async compareAndSet(key, version, value) {
    const now = this.#entries.get(key)?.version ?? 0;
    return now === version ? this.#commit([{ op: "set", key, value }]) : undefined;
  }

  async batch(edits) {
    return this.#commit(edits);
  }

  async list({ prefix = "", start = "", end, after, reverse = false, limit = 100 } = {}) {
    const keys = [...this.#entries.keys()].sort(compare).filter(
      (k) =>
        k.startsWith(prefix) &&
        compare(k, start) >= 0 &&
        (end === undefined || compare(k, end) < 0) &&
        (after === undefined || (reverse ? compare(k, after) < 0 : compare(k, after) > 0)),
    );
    if (reverse) {
      keys.reverse();
    }
    const entries = await Promise.all(keys.slice(0, limit).map((k) => this.getEntry(k)));
    return keys.length > limit ? { entries, after: keys[limit - 1] } : { entries };
  }

  async *entries(options) {
    yield* (await this.list({ ...options, limit: options?.limit ?? Infinity })).entries;
  }
}
