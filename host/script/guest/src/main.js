// The prelude: it puts the web's globals in place and returns boot, which connects it to the driver (funcs.go).
import { ErrorClass, PromiseClass, TypeErrorClass, construct, create, dateNow, defineProperty, endsWith, freeze, functionSource, getOwnPropertyDescriptor, getPrototypeOf, list, ObjectPrototype, ownKeys, parse, promiseOf, record, startsWith, stringify, StringOf, then } from "./primordials.js";
import { callHost, define, host, settle, state } from "./host.js";
import "./self.js";
import { report } from "./console.js";
import { ring } from "./timers.js";
import "./url.js";
import { defineStreams } from "./encoding.js";
import "./events.js";
import "./clone.js";
import "./streams.js";
import { chunkBytes, claimBody, readSource, takeBody } from "./body.js";
import { Remote } from "./remote.js";
import { Request, Response, headerList } from "./fetch.js";
import "./crypto.js";
import "./intl.js";
import "./random.js"; // after the polyfills, some of which make names by Math.random
import { agent, Agent, api, config, emit, log } from "./api.js";
import { bodyOf, formOf, JSON_FORM, OTHER_FORM } from "./forms.js";
import { kv } from "./kv.js";

defineStreams();

// The bundler puts these where import() or require() has an argument that is not a literal.
const notLiteral = (what) => new ErrorClass(`${what} needs a literal name here: imports are resolved when the code is uploaded`);
define({
  skepImport: async () => {
    throw notLiteral("import()");
  },
  skepRequire: () => {
    throw notLiteral("require()");
  },
});
const clock = performance.now.bind(performance);
define({
  self: globalThis,
  navigator: freeze({ userAgent: "Skep", language: "en-US", languages: freeze(["en-US"]), hardwareConcurrency: 1 }),
  performance: { now: () => clock() - state.began, get timeOrigin() { return state.origin; }, toJSON() { return { timeOrigin: state.origin }; } },
});

// The author's module, once it is loaded.
const module = record({ namespace: null, main: undefined, isClass: false, callable: create(null), fetch: false });

const isClass = (f) => typeof f === "function" && startsWith(functionSource(f), "class");

// isBuiltIn reports whether p is a prototype that the language brings: Object's, Array's, Promise's.
function isBuiltIn(p) {
  const c = getOwnPropertyDescriptor(p, "constructor");
  return p === ObjectPrototype || p === Agent.prototype || (c !== undefined && typeof c.value === "function" && endsWith(functionSource(c.value), "[native code]\n}"));
}

// ownFunctions calls add with the name of each function that o or a prototype of the author's has.
function ownFunctions(o, add) {
  for (let p = o; p !== null && !isBuiltIn(p); p = getPrototypeOf(p)) {
    const keys = ownKeys(p);
    for (let i = 0; i < keys.length; i++) {
      const k = keys[i];
      if (typeof k !== "string" || k === "constructor" || k === "__proto__" || k === "prototype") continue;
      const d = getOwnPropertyDescriptor(p, k);
      if (d && typeof d.value === "function") add(k);
    }
  }
}

// EXPORT and METHOD say where a callable function is.
const EXPORT = 1, METHOD = 2;

// inspectModule finds out what may be called. A method of the default export hides a named export.
function inspectModule(ns) {
  module.namespace = ns;
  const names = ownKeys(ns);
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (typeof name !== "string" || name === "default") continue;
    const v = ns[name];
    if (typeof v === "function" && !isClass(v)) module.callable[name] = EXPORT;
  }
  const main = (module.main = ns.default);
  module.isClass = isClass(main);
  if (module.isClass) ownFunctions(main.prototype, (k) => (module.callable[k] = METHOD));
  else if (typeof main === "function") module.callable.default = EXPORT;
  else if (typeof main === "object" && main !== null) ownFunctions(main, (k) => (module.callable[k] = METHOD));
  if (module.callable.fetch === METHOD) {
    module.fetch = true;
    delete module.callable.fetch;
  }
  const exports = list([]);
  const seen = create(null);
  let n = 0;
  const note = (k) => {
    if (!seen[k] && module.callable[k]) {
      seen[k] = true;
      exports[n++] = k;
    }
  };
  for (let i = 0; i < names.length; i++) if (typeof names[i] === "string") note(names[i]);
  if (module.isClass) ownFunctions(main.prototype, note);
  else if (typeof main === "object" && main !== null) ownFunctions(main, note);
  return stringify(record({ exports, fetch: module.fetch }));
}

let waiting = 0; // promises given to waitUntil that are under way
let resultSent = false;

function waitUntil(promise) {
  waiting++;
  const done = () => {
    if (--waiting === 0 && resultSent) host.end();
  };
  then(promiseOf(promise), done, (e) => {
    report(e, "Uncaught (in waitUntil)");
    done();
  });
}

// What functions get as their last argument. A cell makes one call, so there is one.
const context = { waitUntil, emit, agent, log, config, kv, passThroughOnException() {} };

const extras = list([["emit", emit], ["agent", agent], ["log", log], ["config", config], ["kv", kv], ["waitUntil", waitUntil]]);
for (let i = 0; i < extras.length; i++) {
  extras[i] = record({ name: extras[i][0], descriptor: record({ value: extras[i][1], writable: true, configurable: true }) });
}

let instance; // of the default export; one for each cell

function theInstance() {
  if (instance !== undefined) return instance;
  if (module.isClass) return (instance = construct(module.main, [context, config]));
  instance = create(module.main);
  for (let i = 0; i < extras.length; i++) {
    const { name, descriptor } = extras[i];
    if (!(name in instance)) defineProperty(instance, name, descriptor);
  }
  return instance;
}

// fail tells the host what went wrong.
function fail(e) {
  const out = record({ name: "Error", message: "", stack: "" });
  try {
    if (typeof e === "object" && e !== null) {
      out.name = `${e.name ?? "Error"}`;
      out.message = `${e.message ?? ""}`;
      out.stack = typeof e.stack === "string" ? e.stack : "";
      if (typeof e.kind === "string" && e.name === "SkepError") {
        out.kind = e.kind;
        if (typeof e.limit === "string") out.limit = e.limit;
      }
      let text = "";
      for (let c = e.cause, i = 0; c !== undefined && i < 5; c = c?.cause, i++) text += `\nCaused by: ${typeof c === "object" && c !== null ? `${c.name}: ${c.message}\n${c.stack ?? ""}` : StringOf(c)}`;
      out.cause = text;
    } else {
      out.name = "";
      out.message = `threw ${typeof e === "string" ? stringify(e) : StringOf(e)}, which is not an Error`;
    }
  } catch {
    out.message = "an error that cannot be shown";
  }
  if (finished()) host.fail(stringify(out), waiting > 0);
}

// finished reports whether the result may be sent: once.
function finished() {
  if (resultSent) return false;
  return (resultSent = true);
}

// sendValue sends what a function returned. The host's functions that send are told whether the cell goes on.
function sendValue(v) {
  if (typeof v === "object" && v !== null && v instanceof Response) {
    const type = v.headers.get("content-type") ?? "application/octet-stream";
    then(takeBody(v), (bytes) => finished() && host.result(OTHER_FORM, bytes, waiting > 0, type), fail);
    return;
  }
  const form = formOf(v);
  const body = bodyOf(form, v);
  if (finished()) host.result(form, body, waiting > 0);
}

function sendResponse(v) {
  if (!(v instanceof Response)) throw new TypeErrorClass("fetch must return a Response");
  const head = stringify(record({ status: v.status, header: headerList(v.headers) }));
  const source = claimBody(v);
  then(source instanceof ReadableStream || source instanceof Remote ? sendStream(head, source) : readSource(source), (bytes) => finished() && host.response(head, bytes, waiting > 0), fail);
}

const noBytes = new Uint8Array();

// sendStream sends a body piece by piece, as fast as it is taken. It returns what is left to be sent: nothing, or all of it where
// nobody takes pieces.
async function sendStream(head, source) {
  const reader = source instanceof Remote ? null : source.getReader(); // before the status is gone: a stream that is locked is an error
  try {
    await callHost((id) => host.reply(id, head));
  } catch {
    reader?.releaseLock();
    return readSource(source);
  }
  for (;;) {
    const { bytes, last } = reader === null ? await source.read() : await nextOf(reader);
    if (bytes.length > 0) {
      try {
        await callHost((id) => host.piece(id, bytes));
      } catch (e) { // whoever asked has gone
        if (reader === null) source.cancel();
        else await reader.cancel(e);
        return noBytes;
      }
    }
    if (last) return noBytes;
  }
}

async function nextOf(reader) {
  const { done, value } = await reader.read();
  return record({ bytes: done ? noBytes : chunkBytes(value), last: done });
}

// begin opens the cell for a call: what it reads of its surroundings starts here.
function begin(settings) {
  state.loading = false;
  state.settings = settings;
  state.began = clock();
  state.origin = dateNow();
}

// called returns what the function returns.
function called(name, form, input) {
  if (name === "") {
    // A script without functions is its default export.
    if (module.callable.default) name = "default";
    else if (ownKeys(module.callable).length === 0 && !module.isClass) return module.main;
  }
  const where = module.callable[name];
  if (where === undefined) throw new ErrorClass(`there is no function ${stringify(name)}`);
  const v = form !== JSON_FORM ? input : input === "" ? undefined : parse(input);
  if (where === METHOD) return theInstance()[name](v, context);
  const f = module.namespace[name];
  return f(v, context);
}

let serving = false;

function served(head, body) {
  const { method, url, header } = parse(head);
  const pairs = header ?? [];
  serving = true;
  const req = new Request(url, { method, headers: pairs, body: method === "GET" || method === "HEAD" || body.length === 0 ? undefined : body });
  return theInstance().fetch(req, config, context);
}

// returned sends v at once, or returns a promise of what is to be sent. The common case takes no promise of ours.
function returned(v) {
  if ((typeof v === "object" && v !== null) || typeof v === "function") {
    if (typeof v.then === "function") return promiseOf(v);
  }
  send(v);
}

const send = (v) => (serving ? sendResponse(v) : sendValue(v));

const LOADED = 0, CALL = 1, FETCH = 2, SETTLE = 3, ALARM = 4, REJECTION = 5, BEGIN = 6, RETURNED = 7, THROWN = 8;

// entry is the one way in for the driver. It returns at once; what comes of it arrives by the functions of host. A call
// that goes on returns a promise, for which the driver waits.
function entry(kind, a, b, c, d) {
  try {
    switch (kind) {
      case CALL:
        if (state.loading) begin(d);
        return returned(called(a, b, c));
      case SETTLE:
        settle(a, b, c, d);
        return;
      case RETURNED:
        send(a);
        return;
      case THROWN:
        fail(a);
        return;
      case FETCH:
        if (state.loading) begin(c);
        return returned(served(a, b));
      case LOADED:
        then(a, (ns) => host.loaded(inspectModule(ns)), fail);
        return;
      case ALARM:
        try {
          ring();
        } catch (e) {
          report(e);
        }
        return;
      case REJECTION:
        report(a, "Uncaught (in promise)");
        return;
      case BEGIN:
        begin(a);
    }
  } catch (e) {
    fail(e);
  }
}

// boot is called once, with the host's functions in the order of funcs.go, and returns [entry, what "skep" exports].
export default function boot(...functions) {
  const names = ["cancel", "open", "write", "head", "read", "close", "reply", "piece", "state", "agent", "emit", "log", "alarm", "random", "crypto", "encode", "decode", "result", "response", "fail", "loaded", "end"];
  for (let i = 0; i < names.length; i++) host[names[i]] = functions[i];
  freeze(host);
  state.origin = dateNow();
  defineProperty(globalThis, "__skep", { value: api, configurable: true });
  return entry;
}
