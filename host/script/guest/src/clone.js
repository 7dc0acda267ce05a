// structuredClone (HTML Standard, "StructuredSerializeInternal" and its counterpart in one pass).
import { isArray, isBuffer, ownKeys, tag } from "./primordials.js";
import { define } from "./host.js";
import { inspect } from "./console.js";

const refuse = (v) => {
  throw new DOMException(`${inspect(v)} could not be cloned`, "DataCloneError");
};
const errorTypes = { __proto__: null, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
const brand = (get, name) => (v) => {
  if (tag(v) !== name) return false; // most values; cheaper than an exception
  try {
    get.call(v);
    return true;
  } catch {
    return false;
  }
};
const getter = (C, name) => Object.getOwnPropertyDescriptor(C.prototype, name).get;
const isMap = brand(getter(Map, "size"), "[object Map]");
const isSet = brand(getter(Set, "size"), "[object Set]");
const isDate = brand(Date.prototype.getTime, "[object Date]");
const isRegExp = brand(getter(RegExp, "unicodeSets"), "[object RegExp]");
const isBoxed = [Number, String, Boolean, BigInt].map((C) => [brand(C.prototype.valueOf, `[object ${C.name}]`), C]);
const opaque = [WeakMap, WeakSet, WeakRef, Promise, FinalizationRegistry];
let cloneables = []; // [class, (value) => copy], for the web's own classes
export const cloneable = (C, copy) => cloneables.push([C, copy]);

function buffer(v, memo) {
  if (memo.has(v)) return memo.get(v);
  if (v.detached) refuse(v);
  const out = v.resizable ? resized(v) : v.slice(0);
  memo.set(v, out);
  return out;
}

function resized(v) {
  const out = new ArrayBuffer(v.byteLength, { maxByteLength: v.maxByteLength });
  new Uint8Array(out).set(new Uint8Array(v));
  return out;
}

function clone(v, memo) {
  if (typeof v === "symbol" || typeof v === "function") refuse(v);
  if (typeof v !== "object" || v === null) return v;
  if (memo.has(v)) return memo.get(v);
  const keep = (out) => (memo.set(v, out), out);
  if (isBuffer(v)) return buffer(v, memo);
  if (ArrayBuffer.isView(v)) {
    const { byteOffset, byteLength, length } = v;
    const b = buffer(v.buffer, memo);
    const C = v instanceof DataView ? DataView : globalThis[Object.getPrototypeOf(Uint8Array.prototype).__lookupGetter__(Symbol.toStringTag).call(v)];
    return keep(new C(b, byteOffset, C === DataView ? byteLength : length));
  }
  if (isDate(v)) return keep(new Date(Date.prototype.getTime.call(v)));
  if (isRegExp(v)) return keep(new RegExp(v.source, v.flags));
  if (isMap(v)) {
    const out = keep(new Map());
    for (const [k, x] of [...Map.prototype.entries.call(v)]) out.set(clone(k, memo), clone(x, memo));
    return out;
  }
  if (isSet(v)) {
    const out = keep(new Set());
    for (const x of [...Set.prototype.values.call(v)]) out.add(clone(x, memo));
    return out;
  }
  if (v instanceof DOMException) return keep(new DOMException(v.message, v.name));
  if (Error.isError(v)) {
    const e = keep(Reflect.construct(Error, [], errorTypes[v.name] ?? Error));
    for (const k of ["message", "stack", "cause"]) {
      const d = Object.getOwnPropertyDescriptor(v, k);
      if (d && "value" in d) Object.defineProperty(e, k, { value: k === "cause" ? clone(d.value, memo) : String(d.value), writable: true, configurable: true });
    }
    return e;
  }
  for (const [is, C] of isBoxed) if (is(v)) return keep(Object(C.prototype.valueOf.call(v)));
  for (const [C, copy] of cloneables) if (v instanceof C) return keep(copy(v));
  for (const C of opaque) if (v instanceof C) refuse(v);
  const out = keep(isArray(v) ? new Array(v.length) : {});
  for (const k of ownKeys(v)) {
    if (typeof k === "symbol" || !Object.prototype.propertyIsEnumerable.call(v, k)) continue;
    Object.defineProperty(out, k, { value: clone(v[k], memo), writable: true, enumerable: true, configurable: true });
  }
  return out;
}

define({
  structuredClone: function structuredClone(value, options) {
    if (arguments.length === 0) throw new TypeError("structuredClone: a value is required");
    const transfer = [...(options?.transfer ?? [])];
    for (const t of transfer) if (!isBuffer(t)) throw new DOMException("structuredClone: only an ArrayBuffer can be transferred", "DataCloneError");
    const out = clone(value, new Map());
    for (const t of transfer) t.transfer(); // which leaves it detached
    return out;
  },
});
