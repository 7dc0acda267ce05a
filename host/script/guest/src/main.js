// The prelude: it puts the web's globals in place and returns boot, which connects it to the driver (funcs.go).
import { ErrorClass, TypeErrorClass, dateNow, defineProperty, freeze, ownKeys, parse, promiseOf, record, stringify, StringOf, then } from "./primordials.js";
import { callHost, define, host, rejected, settle, state } from "./host.js";
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
import { Agent, ChatAgent, api, config, extend, surround } from "./api.js";
import { files, skills } from "./files.js";
import { bodyOf, formOf, OTHER_FORM } from "./forms.js";
import { called, inspectModule, makeWith, theInstance } from "./module.js";
import { each, serve, yields } from "./serve.js";
import { model } from "./model.js";
import { mustUndo, undoAll } from "./steps.js";
import { ToolError, tools } from "./tools.js";

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

const context = surround(waitUntil);
makeWith([context, config]);

const reserved = (name, input) => serve(name, input, context);

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
      if (typeof e.hint === "string" && e instanceof ToolError) out.hint = e.hint;
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

// failed is fail for what a function has thrown: the steps that it has done are taken back before.
function failed(e) {
  if (!mustUndo()) return fail(e);
  then(undoAll(e), () => fail(e), () => fail(e));
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
  if (yields(v)) { // who reads items as they come calls by skep:rpc
    const all = [];
    then(each(v, (item) => { all[all.length] = item; }), () => sendValue(all), failed);
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

// toolsAround gives code that runs once the tools without an import. A module's own variables of these names hide them.
function toolsAround() {
  const around = { ToolError, files, model, skills, tools };
  for (const name of ownKeys(around)) defineProperty(globalThis, name, record({ value: around[name] }));
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
  if (state.tools) return promiseOf(v); // the driver lets calls of tools be answered before it goes on
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
        return returned(called(a, b, c, context, reserved));
      case SETTLE:
        state.heard++;
        settle(a, b, c, d);
        return;
      case RETURNED:
        send(a);
        return;
      case THROWN:
        failed(a);
        return;
      case FETCH:
        if (state.loading) begin(c);
        return returned(served(a, b));
      case LOADED:
        then(a, (ns) => host.loaded(inspectModule(ns, Agent.prototype, extend, ChatAgent.prototype)), fail);
        return;
      case ALARM:
        state.heard++;
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
        toolsAround();
    }
  } catch (e) {
    if (state.tools && (kind === CALL || kind === FETCH)) return rejected(e); // as returned does
    failed(e);
  }
}

// boot is called once, with the host's functions in the order of funcs.go, and returns [entry, what "skep" exports].
export default function boot(...functions) {
  const names = ["cancel", "open", "write", "head", "read", "close", "reply", "piece", "state", "agent", "emit", "log", "alarm", "random", "crypto", "encode", "decode", "result", "response", "fail", "loaded", "end", "call", "ask"];
  for (let i = 0; i < names.length; i++) host[names[i]] = functions[i];
  freeze(host);
  state.origin = dateNow();
  defineProperty(globalThis, "__skep", { value: api, configurable: true });
  return entry;
}
