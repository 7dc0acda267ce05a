// Ordered key-value state: the agent's own by the calls state.* of package abi, an instance's by storage.*.
import { Bytes, TypeErrorClass, freeze, fromBase64, isArray, list, record, startsWith, stringify, then, toBase64, toWellFormed, viewBytes } from "./primordials.js";
import { callHost, host, json, refuseWhileLoading, rejected } from "./host.js";
import { BYTES_FORM, TEXT_FORM, formOf } from "./forms.js";

// keyed makes the functions of such a state. Errors of theirs begin with what; send begins a call: (id, which of them, body).
export function keyed(what, send) {
  // keyText returns a key as JSON. A lone surrogate would become another key on its way.
  function keyText(key) {
    if (typeof key !== "string" || toWellFormed(key) !== key) throw new TypeErrorClass(`${what}: a key is a string of Unicode characters, not ${typeof key === "string" ? stringify(key) : typeof key}`);
    return stringify(key);
  }

  // valueText returns the field of package abi's StateValue that holds v.
  function valueText(v) {
    if (v === undefined || typeof v === "function" || typeof v === "symbol") throw new TypeErrorClass(`${what}: ${typeof v} has no JSON form; ${what}.delete removes a key`);
    const form = formOf(v);
    if (form === TEXT_FORM) return `"text":${stringify(toWellFormed(v))}`;
    if (form === BYTES_FORM) return `"base64":"${toBase64(viewBytes(v))}"`;
    return `"json":${json(v)}`;
  }

  function ifText(version) {
    if (version === undefined) return "";
    if (!(typeof version === "number" && version >= 0 && version % 1 === 0)) throw new TypeErrorClass(`${what}: a version is a whole number from 0 up`);
    return `,"if":${version}`;
  }

  // valueOf reads a StateValue. One without a field is empty.
  function valueOf(e) {
    if (e.json !== undefined) return e.json;
    if (e.text !== undefined) return e.text;
    if (e.base64 !== undefined) return fromBase64(e.base64);
    return typeof e.type === "string" && startsWith(e.type, "text/") ? "" : new Bytes();
  }

  const entryOf = (e) => ({ key: e.key, value: valueOf(e), version: e.version });

  // ask makes one call, whose body write makes of a, b and c, and returns a promise of what read makes of the answer. The functions are made
  // once and not for each call, which would cost as much as the call.
  function ask(call, write, read, a, b, c) {
    try {
      refuseWhileLoading(what);
      return callHost(send, undefined, undefined, read, call, write(a, b, c));
    } catch (e) {
      return rejected(e);
    }
  }

  const versionOf = (out) => out.version;
  const nothing = () => {};

  const keyQuery = (key) => `{"keys":[${keyText(key)}]}`;
  const firstEntry = (out) => (out.entries.length === 0 ? undefined : entryOf(out.entries[0]));
  const firstValue = (out) => (out.entries.length === 0 ? undefined : valueOf(out.entries[0]));
  const getEntry = (key) => ask("get", keyQuery, firstEntry, key);
  const get = (key) => ask("get", keyQuery, firstValue, key);

  // getMany returns values in the order of keys.
  function getMany(keys) {
    return ask("get", () => {
      if (!isArray(keys)) throw new TypeErrorClass(`${what}.getMany takes an array of keys`);
      let text = "";
      for (let i = 0; i < keys.length; i++) text += (i > 0 ? "," : "") + keyText(keys[i]);
      return `{"keys":[${text}]}`;
    }, (out) => {
      const values = [];
      let next = 0; // the answer has the keys that are there, in the same order
      for (let i = 0; i < keys.length; i++) {
        const e = out.entries[next];
        if (e !== undefined && e.key === keys[i]) {
          values[i] = valueOf(e);
          next++;
        } else values[i] = undefined;
      }
      return values;
    });
  }

  const setting = (key, value, version) => `{"key":${keyText(key)},${valueText(value)}${ifText(version)}}`;
  const set = (key, value, options) => ask("set", setting, versionOf, key, value, options?.ifVersion);

  const removal = (key, version) => `{"key":${keyText(key)}${ifText(version)}}`;
  const remove = (key, options) => ask("delete", removal, nothing, key, options?.ifVersion);

  // compareAndSet resolves to undefined when the key has another version.
  function compareAndSet(key, version, value) {
    if (version === undefined) return rejected(new TypeErrorClass(`${what}.compareAndSet needs a version; 0 means that the key must not be there`));
    return then(set(key, value, { ifVersion: version }), undefined, (e) => {
      if (e?.kind === "conflict") return undefined;
      throw e;
    });
  }

  function batch(edits) {
    return ask("batch", () => {
      if (!isArray(edits)) throw new TypeErrorClass(`${what}.batch takes an array of edits such as { op: "set", key, value }`);
      let text = "";
      for (let i = 0; i < edits.length; i++) {
        const e = edits[i];
        if (e?.op !== "set" && e?.op !== "delete" && e?.op !== "check") throw new TypeErrorClass(`${what}.batch: the op of edit ${i + 1} must be "set", "delete" or "check"`);
        text += `${i > 0 ? "," : ""}{"do":"${e.op}","key":${keyText(e.key)}${e.op === "set" ? `,${valueText(e.value)}` : ""}${ifText(e.ifVersion)}}`;
      }
      return `{"edits":[${text}]}`;
    }, versionOf);
  }

  const bounds = list(["prefix", "start", "end", "after"]);

  // page asks for one page of what options select.
  function page(options) {
    return ask("list", () => {
      const q = record({ reverse: options?.reverse === true });
      for (let i = 0; i < bounds.length; i++) {
        const b = options?.[bounds[i]];
        if (b === undefined) continue;
        keyText(b);
        q[bounds[i]] = b;
      }
      if (options?.limit !== undefined) q.limit = options.limit;
      return stringify(q);
    }, (out) => {
      const entries = [];
      for (let i = 0; i < out.entries.length; i++) entries[i] = entryOf(out.entries[i]);
      return out.after === undefined ? { entries } : { entries, after: out.after };
    });
  }

  // entries walks all that options select; limit bounds the whole.
  async function* entries(options) {
    let left = options?.limit ?? Infinity, after = options?.after;
    while (left > 0) {
      const got = await page({ ...options, after, limit: left < 1000 ? left : undefined });
      for (let i = 0; i < got.entries.length; i++) yield got.entries[i];
      left -= got.entries.length;
      if (got.after === undefined) return;
      after = got.after;
    }
  }

  return { get, getMany, getEntry, set, delete: remove, compareAndSet, batch, list: page, entries };
}

export const kv = freeze(keyed("kv", (id, call, body) => host.state(id, call, body)));
