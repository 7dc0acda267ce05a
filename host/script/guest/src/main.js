// The prelude: it puts the web's globals in place and returns boot, which connects it to the driver (bridge.go).
import { ErrorClass, PromiseClass, Table, TypeErrorClass, apply, construct, create, dateNow, defineProperty, endsWith, freeze, functionSource, getOwnPropertyDescriptor, getPrototypeOf, list, ObjectPrototype, ownKeys, parse, record, setPrototypeOf, startsWith, stringify, StringOf, then } from "./primordials.js";
import { define, host, settle, state } from "./host.js";
import "./self.js";
import { report } from "./console.js";
import { ring } from "./timers.js";
import "./url.js";
import { defineStreams } from "./encoding.js";
import "./events.js";
import "./clone.js";
import "./streams.js";
import { Request, Response, headerList, takeBody } from "./fetch.js";
import "./crypto.js";
import "./intl.js";
import "./random.js"; // after the polyfills, some of which make names by Math.random
import { agent, Agent, api, config, emit, log, payloadOf } from "./api.js";

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
const module = record({ namespace: null, main: undefined, isClass: false, callable: new Table(), fetch: false });

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
    if (typeof v === "function" && !isClass(v)) module.callable.set(name, EXPORT);
  }
  const main = (module.main = ns.default);
  module.isClass = isClass(main);
  if (module.isClass) ownFunctions(main.prototype, (k) => module.callable.set(k, METHOD));
  else if (typeof main === "function") module.callable.set("default", EXPORT);
  else if (typeof main === "object" && main !== null) ownFunctions(main, (k) => module.callable.set(k, METHOD));
  if (module.callable.get("fetch") === METHOD) {
    module.fetch = true;
    module.callable.delete("fetch");
  }
  const exports = list([]);
  const seen = new Table();
  let n = 0;
  const note = (k) => {
    if (!seen.has(k) && module.callable.has(k)) {
      seen.set(k, true);
      exports[n++] = k;
    }
  };
  for (let i = 0; i < names.length; i++) if (typeof names[i] === "string") note(names[i]);
  if (module.isClass) ownFunctions(main.prototype, note);
  else if (typeof main === "object" && main !== null) ownFunctions(main, note);
  return stringify(record({ exports, fetch: module.fetch }));
}

// What functions get as their last argument.
let waiting = 0;
let resultSent = false;

function waitUntil(promise) {
  waiting++;
  const done = () => {
    if (--waiting === 0 && resultSent) host.end();
  };
  then(resolved(promise), done, (e) => {
    report(e, "Uncaught (in waitUntil)");
    done();
  });
}
const resolved = (v) => new PromiseClass((resolve) => resolve(v));

function callContext() {
  return setPrototypeOf({ waitUntil, emit, agent, log, config, passThroughOnException() {} }, ObjectPrototype);
}

let instance; // of the default export; one for each cell

function theInstance(ctx) {
  if (instance !== undefined) return instance;
  if (module.isClass) return (instance = construct(module.main, [ctx, config]));
  instance = create(module.main);
  const extras = { emit, agent, log, config, waitUntil };
  const names = ownKeys(extras);
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (!(name in instance)) defineProperty(instance, name, { value: extras[name], writable: true, configurable: true });
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
  finish(() => host.fail(stringify(out)));
}

function finish(send) {
  if (resultSent) return;
  resultSent = true;
  send();
  if (waiting === 0) host.end();
}

async function sendValue(v) {
  if (v instanceof Response) {
    const bytes = await takeBody(v);
    finish(() => host.result(v.headers.get("content-type") ?? "application/octet-stream", bytes));
    return;
  }
  const p = payloadOf(v);
  finish(() => host.result(p.type, p.bytes ?? p.text));
}

async function sendResponse(v) {
  if (!(v instanceof Response)) throw new TypeErrorClass("fetch must return a Response");
  const bytes = await takeBody(v);
  finish(() => host.response(stringify(record({ status: v.status, header: headerList(v.headers) })), bytes));
}

// begin opens the cell for a call: what it reads of its surroundings starts here.
function begin(settings) {
  state.loading = false;
  state.config = freeze(setPrototypeOf(settings, null));
  state.began = clock();
  state.origin = dateNow();
}

// value turns a call's input into what the function gets. tag says how it came: json, text, or bytes.
const value = (tag, input) => (tag === "json" ? (input === "" ? undefined : parse(input)) : input);

async function run(head, input) {
  let name = head.function;
  if (name === "") {
    // A script without functions is its default export.
    if (module.callable.has("default")) name = "default";
    else if (module.callable.size === 0 && !module.isClass) return sendValue(await module.main);
  }
  const where = module.callable.get(name);
  if (where === undefined) throw new ErrorClass(`there is no function ${stringify(name)}`);
  const ctx = callContext();
  const v = value(head.tag, input);
  if (where === METHOD) {
    const self = theInstance(ctx);
    return sendValue(await apply(self[name], self, [v, ctx]));
  }
  return sendValue(await apply(module.namespace[name], undefined, [v, ctx]));
}

async function serve(head, body) {
  const { method, url, header } = head;
  const pairs = header ?? [];
  const req = new Request(url, { method, headers: pairs, body: method === "GET" || method === "HEAD" || body.length === 0 ? undefined : body });
  const ctx = callContext();
  const self = theInstance(ctx);
  await sendResponse(await apply(self.fetch, self, [req, config, ctx]));
}

const LOADED = 0, CALL = 1, FETCH = 2, SETTLE = 3, ALARM = 4, REJECTION = 5, BEGIN = 6;

// entry is the one way in for the driver. It returns at once; what comes of it arrives by the functions of host.
function entry(kind, a, b, c) {
  switch (kind) {
    case LOADED:
      then(a, (ns) => host.loaded(inspectModule(ns)), fail);
      return;
    case CALL: {
      const head = parse(a);
      if (state.loading) begin(head.config);
      then(run(head, b), undefined, fail);
      return;
    }
    case FETCH: {
      const head = parse(a);
      if (state.loading) begin(head.config);
      then(serve(head, b), undefined, fail);
      return;
    }
    case SETTLE:
      settle(a, c, b);
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
      begin(parse(a));
  }
}

// boot is called once, with the host's functions in the order of bridge.go, and returns [entry, what "skep" exports].
export default function boot(...functions) {
  const names = ["call", "cancel", "sync", "log", "alarm", "random", "crypto", "encode", "decode", "result", "response", "fail", "loaded", "end"];
  for (let i = 0; i < names.length; i++) host[names[i]] = functions[i];
  freeze(host);
  state.origin = dateNow();
  defineProperty(globalThis, "__skep", { value: api, configurable: true });
  return entry;
}
