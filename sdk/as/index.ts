// What the author of a Skep agent in AssemblyScript imports. It speaks the Extism ABI and Skep's own calls.
//
// An agent exports a function for each thing it can do, which returns 0, or what fail returns. Every call runs in a fresh copy
// of the program as it was when it had been loaded, so nothing that one call leaves in memory is seen by the next.

import * as abi from "./abi";
import * as json from "./json";

export { json };

/** Returns the text that the call was given. */
export function inputText(): string {
  return String.UTF8.decode(inputBytes().buffer);
}

/** Returns the bytes that the call was given. */
export function inputBytes(): Uint8Array {
  return abi.read(abi.inputOffset(), abi.inputLength());
}

/** Sets the call's output, in place of any set before. Returns 0, for an exported function to return. */
export function outputText(text: string): i32 {
  return outputBytes(Uint8Array.wrap(String.UTF8.encode(text)));
}

/** Sets the call's output, in place of any set before. Returns 0, for an exported function to return. */
export function outputBytes(bytes: Uint8Array): i32 {
  abi.outputSet(abi.storeBytes(bytes), bytes.length);
  return 0;
}

/** Sets the call's error. Returns 1, for an exported function to return. */
export function fail(message: string): i32 {
  abi.errorSet(abi.storeText(message));
  return 1;
}

/** Writes a line of console output: it shows in the agent's log and in the session's events. */
export function debug(line: string): void { abi.logDebug(abi.storeText(line)); }
export function info(line: string): void { abi.logInfo(abi.storeText(line)); }
export function warn(line: string): void { abi.logWarn(abi.storeText(line)); }
export function error(line: string): void { abi.logError(abi.storeText(line)); }

/** Returns a plain setting of the agent, or null. */
export function config(key: string): string | null {
  const at = abi.configGet(abi.storeText(key));
  return at == 0 ? null : abi.loadText(at);
}

/** What became of a call to the host. */
export class Result {
  constructor(
    public ok: bool,
    /** The answer; what went wrong when the call failed. */
    public text: string,
    /** `"denied"`, `"not_found"`, `"exhausted"`, ...; empty when the call worked. */
    public kind: string = "",
  ) {}
}

/** Makes any call to the host by its name, with JSON: the calls of package abi, such as `"alarm.set"` or `"socket.send"`. */
export function ask(name: string, input: string): Result {
  const reply = abi.loadBytes(abi.skepCall(abi.storeText(name), abi.storeText(input)));
  const text = String.UTF8.decode(reply.buffer.slice(1));
  if (reply[0] == 0) return new Result(true, text);
  const message = json.text(text, "message");
  const kind = json.text(text, "kind");
  return new Result(false, message === null ? text : message, kind === null ? "internal" : kind);
}

/**
 * Writes an event of the agent's own to the session's log, from where it reaches every listener.
 * @param data any value, as JSON text
 */
export function emit(name: string, data: string = "null"): Result {
  return ask("emit", '{"name":' + json.quote(name) + ',"data":' + data + "}");
}

/** Calls a function of another agent of the same app, which must have been granted, with text of a media type. */
export function callAgent(agent: string, name: string, input: string, type: string = "application/json"): Result {
  const body = '{"agent":' + json.quote(agent) + ',"function":' + json.quote(name) + ',"type":' + json.quote(type) + ',"input":"' +
    json.base64(String.UTF8.encode(input)) + '"}';
  const r = ask("agent", body);
  if (!r.ok) return r;
  const output = json.text(r.text, "output");
  return new Result(true, output === null ? "" : String.UTF8.decode(json.unbase64(output)));
}

/**
 * Reads a key of the agent's own state, which must have been granted. JSON comes back as its text, bytes as UTF-8. A key that is not
 * there is a result that is not ok, of kind `"not_found"`.
 */
export function kvGet(key: string): Result {
  return get("state.get", key);
}

/** Sets a key of the agent's own state to text of a media type. What was set is durable when it returns. */
export function kvSet(key: string, value: string, type: string = "text/plain; charset=utf-8"): Result {
  return set("state.set", key, value, type);
}

/** Deletes a key of the agent's own state. One that is not there is no error. */
export function kvDelete(key: string): Result {
  return ask("state.delete", '{"key":' + json.quote(key) + "}");
}

/** Reads a key of the state of the instance whose code runs, as `kvGet` does. It needs no grant. */
export function storageGet(key: string): Result {
  return get("storage.get", key);
}

/** Sets a key of the instance's state to text of a media type. It is part of the turn. */
export function storageSet(key: string, value: string, type: string = "text/plain; charset=utf-8"): Result {
  return set("storage.set", key, value, type);
}

/** Deletes a key of the instance's state. One that is not there is no error. */
export function storageDelete(key: string): Result {
  return ask("storage.delete", '{"key":' + json.quote(key) + "}");
}

/** Waits for so many milliseconds. Only a run can. A run that waits long is played again from its beginning. */
export function sleep(milliseconds: i64): Result {
  return ask("run.sleep", '{"for":' + milliseconds.toString() + "}");
}

/**
 * Waits for an event of that type that is sent to the run, for so many milliseconds or, when that is 0, until it comes. The text is
 * what came with it, as JSON; when the time is up the result is not ok, of kind `"timed_out"`.
 */
export function waitForEvent(type: string, milliseconds: i64 = 0): Result {
  const r = ask("run.wait", '{"type":' + json.quote(type) + ',"timeout":' + milliseconds.toString() + "}");
  if (!r.ok) return r;
  if (json.member(r.text, "timed_out") !== null) return new Result(false, "the event did not come in time", "timed_out");
  const data = json.member(r.text, "data");
  return new Result(true, data === null ? "null" : data);
}

function get(call: string, key: string): Result {
  const r = ask(call, '{"keys":[' + json.quote(key) + "]}");
  if (!r.ok) return r;
  const entries = json.member(r.text, "entries");
  if (entries === null || entries.indexOf("{") < 0) return new Result(false, "there is no such key", "not_found");
  const entry = entries.substring(entries.indexOf("{"));
  const value = json.member(entry, "json");
  if (value !== null) return new Result(true, value);
  const text = json.text(entry, "text");
  if (text !== null) return new Result(true, text);
  const bytes = json.text(entry, "base64");
  return new Result(true, bytes === null ? "" : String.UTF8.decode(json.unbase64(bytes)));
}

function set(call: string, key: string, value: string, type: string): Result {
  return ask(call, '{"key":' + json.quote(key) + ',"type":' + json.quote(type) + ',"base64":"' + json.base64(String.UTF8.encode(value)) + '"}');
}

/** An outbound request, for `fetch`. */
export class Request {
  headers: string[][] = [];
  body: Uint8Array = new Uint8Array(0);
  constructor(public url: string, public method: string = "GET") {}
  /** Adds a header. */
  header(name: string, value: string): Request {
    this.headers.push([name, value]);
    return this;
  }
  /** Sets the body to text. */
  text(body: string): Request {
    this.body = Uint8Array.wrap(String.UTF8.encode(body));
    return this;
  }
}

/** What answers a request. Redirects have been followed, and the body is decoded. */
export class Response {
  constructor(
    /** Whether there is a response, whatever its status. */
    public ok: bool,
    public status: i32,
    /** The headers as JSON text: `[["name","value"],...]`. */
    public headers: string,
    public body: Uint8Array,
    /** What went wrong when there is none, and what kind of error that is. */
    public error: string = "",
    public kind: string = "",
  ) {}
  text(): string {
    return String.UTF8.decode(this.body.buffer);
  }
}

/** Makes a request, which must have been granted, and returns the whole response. */
export function fetch(request: Request): Response {
  let headers = "";
  for (let i = 0; i < request.headers.length; i++) {
    headers += (i > 0 ? ",[" : "[") + json.quote(request.headers[i][0]) + "," + json.quote(request.headers[i][1]) + "]";
  }
  const r = ask("http", '{"method":' + json.quote(request.method) + ',"url":' + json.quote(request.url) + ',"header":[' + headers +
    '],"body":"' + json.base64(request.body.buffer) + '"}');
  if (!r.ok) return new Response(false, 0, "[]", new Uint8Array(0), r.text, r.kind);
  const body = json.text(r.text, "body");
  const got = json.member(r.text, "header");
  return new Response(true, i32(json.number(r.text, "status")), got === null ? "[]" : got,
    body === null ? new Uint8Array(0) : Uint8Array.wrap(json.unbase64(body)));
}

/**
 * Returns the placeholder of a secret: `{{secret:NAME}}`. Write it where the secret belongs in a request: as a header's value or in
 * it, as a query parameter, as a form field or as a string in a JSON body. The host puts the value in on the way out, where the
 * secret is bound to and was granted, and nowhere else; the agent never sees it. A name that no secret can have fails the call.
 */
export function secret(name: string): string {
  const n = name.length;
  let good = n > 0 && n <= 63;
  for (let i = 0; good && i < n; i++) {
    const c = name.charCodeAt(i);
    const end = (c >= 97 && c <= 122) || (c >= 48 && c <= 57);
    good = end || (i > 0 && i < n - 1 && (c == 45 || c == 46 || c == 95));
  }
  assert(good, "not the name of a secret: " + name);
  return "{{secret:" + name + "}}";
}

/** What the compiler calls when the program fails; `"use": ["abort=.../index/abort"]` in asconfig.json makes it so. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const what = message === null ? "the program aborted" : message;
  fail((file === null ? "" : file + ":" + line.toString() + ":" + column.toString() + ": ") + what);
  unreachable();
}
