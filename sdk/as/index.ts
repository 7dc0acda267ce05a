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

function ask(name: string, input: string): Result {
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

/** What the compiler calls when the program fails; `"use": ["abort=.../index/abort"]` in asconfig.json makes it so. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const what = message === null ? "the program aborted" : message;
  fail((file === null ? "" : file + ":" + line.toString() + ":" + column.toString() + ": ") + what);
  unreachable();
}
