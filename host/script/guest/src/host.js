// The calls into the host. Nothing here is reachable from an author's code.
import { ErrorClass, PromiseClass, apply, defineProperty, freeze, getOwnPropertyDescriptor, list, parse, record, setPrototypeOf, stringify } from "./primordials.js";

// host holds the functions that the driver gives to boot. See funcs.go for what each does.
export const host = Object.create(null);

// state.loading is true while an author's module is evaluated into an image, which later calls share.
// state.heard counts what the host has brought to the code since. state.tools is true once the code has called a tool.
export const state = record({ loading: true, settings: "", config: null, began: 0, origin: 0, heard: 0, tools: false });

// settings are the call's config, read when somebody asks.
export function settings() {
  return (state.config ??= freeze(setPrototypeOf(state.settings === "" ? {} : parse(state.settings), null)));
}

// refuseWhileLoading throws unless a call is under way.
export function refuseWhileLoading(what) {
  if (state.loading) {
    throw new ErrorClass(`${what} is not available while the module loads: its state is shared by all later calls. Do it inside a function`);
  }
}

export const hidden = (value) => record({ value, configurable: true, writable: true });

export class SkepError extends Error {
  constructor(kind, message, limit, hint) {
    super(message);
    defineProperty(this, "name", hidden("SkepError"));
    defineProperty(this, "kind", record({ value: kind, enumerable: true }));
    if (limit) defineProperty(this, "limit", record({ value: limit, enumerable: true }));
    if (hint) defineProperty(this, "hint", record({ value: hint, enumerable: true }));
  }
}

// errorOf makes the error that an ErrorBody of package abi stands for.
export function errorOf(body) {
  const e = parse(body);
  return new SkepError(e.kind, e.message, e.limit, e.hint);
}

const { get: prepareOf, set: setPrepare } = getOwnPropertyDescriptor(Error, "prepareStackTrace");

// errorWithoutStack does so too, but the engine gives the error a stack only where it is thrown, which is where an author
// awaits the call: while the engine prepares one stack, it takes no other.
function errorWithoutStack(body) {
  const before = apply(prepareOf, ErrorClass, []);
  let e;
  apply(setPrepare, ErrorClass, [() => {
    e = errorOf(body);
    return "";
  }]);
  new ErrorClass();
  apply(setPrepare, ErrorClass, [before]);
  return e ?? errorOf(body); // with Error.stackTraceLimit at 0 the engine prepares nothing
}

// The calls under way: what resolves a call, what rejects it, the stack of its errors, and what reads its answer stand at its number and
// after it.
const calls = list([]);
const idle = list([]); // numbers that are free again
let next = 0, idles = 0;

let resolveNew, rejectNew;
const keep = (resolve, reject) => {
  resolveNew = resolve;
  rejectNew = reject;
};

// openCall takes a number for a call whose answer the host brings to settle. Its promise is newest until the next one. An
// error has the given stack; without one the engine gives it the stack of where it is thrown again, by the author's await.
export let newest;
export function openCall(stack) {
  newest = new PromiseClass(keep);
  let id = next;
  if (idles > 0) id = idle[--idles];
  else next += 4;
  calls[id] = resolveNew;
  calls[id + 1] = rejectNew;
  calls[id + 2] = stack;
  calls[id + 3] = undefined;
  return id;
}

// callHost has start begin a call under the number it is given, and returns a promise of the answer. Errors get the given
// stack; or stack is a function, which makes the error of an ErrorBody. cancel, when given, gets a function that abandons the call. read, when given, makes the promise's value of an answer that is
// parsed, which is cheaper than one more promise. start is given a and b, too, so that it need not be a function made for the call.
export function callHost(start, stack, cancel, read, a, b) {
  const id = openCall(stack);
  calls[id + 3] = read;
  const promise = newest;
  const reject = rejectNew;
  if (cancel) {
    cancel((reason) => {
      if (calls[id + 1] !== reject) return;
      calls[id] = calls[id + 1] = undefined; // and the number is not used again, for an answer may still come
      host.cancel(id);
      reject(reason);
    });
  }
  start(id, a, b);
  return promise;
}

const FAILED = 0, PARSE = 1, HEAD = 3, PIECE = 4; // and 2: the value as it is

// settle delivers the answer to call id. form says how body is to be read, and more what belongs to it.
export function settle(id, form, body, more) {
  const resolve = calls[id], reject = calls[id + 1], stack = calls[id + 2], read = calls[id + 3];
  if (resolve === undefined) {
    if (form === HEAD) host.close(parse(body).id); // of a request that was given up meanwhile
    return;
  }
  calls[id] = calls[id + 1] = undefined;
  idle[idles++] = id;
  if (form === FAILED) {
    if (typeof stack === "function") {
      reject(stack(body));
      return;
    }
    const e = stack === undefined ? errorWithoutStack(body) : errorOf(body);
    if (stack !== undefined) defineProperty(e, "stack", hidden(stack));
    reject(e);
    return;
  }
  if (form === PARSE) {
    try {
      body = body === "" ? undefined : parse(body);
      if (read !== undefined) body = read(body);
    } catch (e) {
      reject(e);
      return;
    }
  }
  if (form === HEAD) body = record({ head: parse(body), bytes: more });
  else if (form === PIECE) body = record({ bytes: body, last: more === true });
  resolve(body);
}

// rejected returns a promise that is.
export const rejected = (e) => new PromiseClass((_, reject) => reject(e));

// json is JSON.stringify where undefined becomes null.
export function json(v) {
  if (typeof v === "number") return v - v === 0 ? `${v}` : "null"; // which is quicker
  const s = stringify(v);
  return s === undefined ? "null" : s;
}

// define adds globals the way the web does: writable, configurable and not enumerable.
export function define(globals) {
  for (const name of Object.keys(globals)) {
    defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true, enumerable: false });
  }
}
