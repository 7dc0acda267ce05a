// The calls into the host. Nothing here is reachable from an author's code.
import { ErrorClass, PromiseClass, Table, defineProperty, parse, record, stringify } from "./primordials.js";

// host holds the functions that the driver gives to boot. See bridge.go for what each does.
export const host = Object.create(null);

// state.loading is true while an author's module is evaluated into an image, which later calls share.
export const state = record({ loading: true, config: Object.create(null), began: 0 });

// refuseWhileLoading throws unless a call is under way.
export function refuseWhileLoading(what) {
  if (state.loading) {
    throw new ErrorClass(`${what} is not available while the module loads: its state is shared by all later calls. Do it inside a function`);
  }
}

export class SkepError extends Error {
  constructor(kind, message, limit) {
    super(message);
    defineProperty(this, "name", { value: "SkepError", configurable: true, writable: true });
    defineProperty(this, "kind", { value: kind, enumerable: true });
    if (limit) defineProperty(this, "limit", { value: limit, enumerable: true });
  }
}

// errorOf makes the error that an ErrorBody of package abi stands for.
export function errorOf(body) {
  const e = parse(body);
  return new SkepError(e.kind, e.message, e.limit);
}

const pending = new Table();
let lastID = 0;

// callHost asks for the host call name and returns a promise of its answer. cancel, when given, gets a function that
// abandons the call.
export function callHost(name, body, cancel) {
  const id = ++lastID;
  const { stack } = new ErrorClass(); // where an error of this call will say it is from
  return new PromiseClass((resolve, reject) => {
    pending.set(id, record({ resolve, reject, stack }));
    if (cancel) {
      cancel((reason) => {
        if (!pending.has(id)) return;
        pending.delete(id);
        host.cancel(id);
        reject(reason);
      });
    }
    host.call(id, name, body);
  });
}

// settle delivers the answer to call id.
export function settle(id, ok, body) {
  const p = pending.take(id);
  if (!p) return;
  if (ok) p.resolve(body);
  else {
    const e = errorOf(body);
    defineProperty(e, "stack", { value: p.stack, writable: true, configurable: true });
    p.reject(e);
  }
}

// callNow makes a host call that is answered before it returns.
export function callNow(name, body) {
  const failed = host.sync(name, body);
  if (failed !== undefined) throw errorOf(failed);
}

// json is JSON.stringify where undefined becomes null.
export function json(v) {
  const s = stringify(v);
  return s === undefined ? "null" : s;
}

// define adds globals the way the web does: writable, configurable and not enumerable.
export function define(globals) {
  for (const name of Object.keys(globals)) {
    defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true, enumerable: false });
  }
}
