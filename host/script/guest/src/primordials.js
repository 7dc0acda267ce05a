// What the bridge uses of the language, taken before any author's code runs, so that a script that changes a prototype
// breaks only itself.
const { bind, call } = Function.prototype;
const uncurry = bind.bind(call);

export const { apply, construct, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;
export const { create, freeze, keys: keysOf, prototype: ObjectPrototype, setPrototypeOf } = Object;
export const parse = JSON.parse;
export const stringify = JSON.stringify;
export const isArray = Array.isArray;
export const dateNow = Date.now;
const DateClass = Date;
export const fromDate = (ms) => new DateClass(ms);
export const ErrorClass = Error;
export const TypeErrorClass = TypeError;
export const RangeErrorClass = RangeError;
export const PromiseClass = Promise;
export const Bytes = Uint8Array;
export const isView = ArrayBuffer.isView;
export const StringOf = String;
export const BigIntOf = BigInt;
export const isSafeInteger = Number.isSafeInteger;
export const join = uncurry(Array.prototype.join);

export const promiseOf = Promise.resolve.bind(Promise);
export const then = uncurry(Promise.prototype.then);
export const functionSource = uncurry(Function.prototype.toString);
export const startsWith = uncurry(String.prototype.startsWith);
export const endsWith = uncurry(String.prototype.endsWith);
export const includes = uncurry(String.prototype.includes);
export const indexOf = uncurry(String.prototype.indexOf);
export const lastIndexOf = uncurry(String.prototype.lastIndexOf);
export const sliceText = uncurry(String.prototype.slice);
export const match = uncurry(RegExp.prototype.exec);
export const toWellFormed = uncurry(String.prototype.toWellFormed);
export const fromBase64 = Uint8Array.fromBase64;
export const toBase64 = uncurry(Uint8Array.prototype.toBase64);

const mapGet = uncurry(Map.prototype.get);
const mapSet = uncurry(Map.prototype.set);
const mapHas = uncurry(Map.prototype.has);
const mapDelete = uncurry(Map.prototype.delete);
const mapSize = uncurry(getOwnPropertyDescriptor(Map.prototype, "size").get);
const MapClass = Map;

// Table is a Map whose methods cannot be replaced.
export class Table {
  #map = new MapClass();
  get(k) { return mapGet(this.#map, k); }
  set(k, v) { mapSet(this.#map, k, v); }
  has(k) { return mapHas(this.#map, k); }
  delete(k) { return mapDelete(this.#map, k); }
  take(k) {
    const v = mapGet(this.#map, k);
    mapDelete(this.#map, k);
    return v;
  }
  get size() { return mapSize(this.#map); }
}
freeze(Table.prototype);

// record copies o into an object without a prototype, so that JSON.stringify finds no toJSON in it.
export function record(o) {
  return setPrototypeOf(o, null);
}

// list takes an array's prototype away, for the same reason.
export function list(a) {
  return setPrototypeOf(a, null);
}

// viewBytes returns the bytes of an ArrayBuffer or of a view of one, without copying them.
const typedProto = getPrototypeOf(Uint8Array.prototype);
const typedBuffer = uncurry(getOwnPropertyDescriptor(typedProto, "buffer").get);
const typedOffset = uncurry(getOwnPropertyDescriptor(typedProto, "byteOffset").get);
const typedLength = uncurry(getOwnPropertyDescriptor(typedProto, "byteLength").get);
const dataBuffer = uncurry(getOwnPropertyDescriptor(DataView.prototype, "buffer").get);
const dataOffset = uncurry(getOwnPropertyDescriptor(DataView.prototype, "byteOffset").get);
const dataLength = uncurry(getOwnPropertyDescriptor(DataView.prototype, "byteLength").get);
const bufferLength = uncurry(getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get);
const tagOf = uncurry(getOwnPropertyDescriptor(typedProto, Symbol.toStringTag).get);
const slice = uncurry(Uint8Array.prototype.slice);

// tag returns what kind of built-in v says it is; brands must confirm it, for an author can set Symbol.toStringTag.
export const tag = uncurry(Object.prototype.toString);

export function isBuffer(v) {
  if (typeof v !== "object" || v === null || tag(v) !== "[object ArrayBuffer]") return false;
  try {
    bufferLength(v);
    return true;
  } catch {
    return false;
  }
}

export function viewBytes(v) {
  if (!isView(v)) return new Bytes(v);
  if (tagOf(v) === "Uint8Array") return v;
  if (tagOf(v) !== undefined) return new Bytes(typedBuffer(v), typedOffset(v), typedLength(v));
  return new Bytes(dataBuffer(v), dataOffset(v), dataLength(v));
}

export function copyBytes(v) {
  return slice(viewBytes(v));
}

export function joinBytes(parts) {
  let n = 0;
  for (let i = 0; i < parts.length; i++) n += parts[i].length;
  const out = new Bytes(n);
  n = 0;
  for (let i = 0; i < parts.length; i++) {
    setBytes(out, parts[i], n);
    n += parts[i].length;
  }
  return out;
}
const setBytes = uncurry(Uint8Array.prototype.set);
