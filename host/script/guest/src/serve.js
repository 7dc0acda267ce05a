// The functions that a host calls in every script: see reserved.go of package abi.
import { ErrorClass, TypeErrorClass, create, fromBase64, parse, promiseOf, record, startsWith, stringify, then } from "./primordials.js";
import { Headers } from "./headers.js";
import { handler, calledWith, isCallable } from "./module.js";
import { beginState, setState, stateVersion } from "./shared.js";
import { Connection, sendTo } from "./sockets.js";
import { json } from "./host.js";

// handlers are methods that no client may call.
const handlers = record(create(null));
for (const name of ["onStart", "onUpgrade", "onAlarm", "onConnect", "onSocketMessage", "onClose", "onStateChanged", "validateStateChange", "initialState"]) handlers[name] = true;

// serve returns what the reserved function of that name returns, or a promise of it.
export function serve(name, text, context) {
  if (!startsWith(name, "skep:")) throw new ErrorClass(`there is no function ${stringify(name)}`);
  const event = parse(text);
  switch (name) {
    case "skep:setState":
      return after(setState(event.state, event.source, event.if), () => record({ version: stateVersion() }));
    case "skep:connect": {
      beginState();
      const request = { url: event.socket.url ?? "", headers: new Headers(event.socket.header ?? []) };
      return quietly(handler("onConnect")?.(new Connection(event.socket), { request }, context));
    }
    case "skep:message":
      return quietly(handler("onSocketMessage")?.(new Connection(event.socket), event.text ?? fromBase64(event.base64 ?? ""), context));
    case "skep:close":
      return quietly(handler("onClose")?.(new Connection(event.socket), event.code ?? 1005, event.reason ?? "", context));
    case "skep:rpc":
      return called(event, context);
  }
  throw new ErrorClass(`there is no function ${stringify(name)}`);
}

// after waits for v, if that is a promise.
const after = (v, read) => (typeof v?.then === "function" ? then(promiseOf(v), read) : read());

const quietly = (v) => after(v, () => {});

// called calls a method for a client. What it yields is sent as it comes.
async function called({ method, args, connection, id }, context) {
  if (typeof method !== "string" || handlers[method] || !isCallable(method)) throw new TypeErrorClass(`there is no method ${stringify(method)}`);
  let v = await calledWith(method, args ?? [], context);
  if (yields(v)) v = await each(v, (item) => sendTo(connection, `{"type":"rpc","id":${stringify(id)},"success":true,"done":false,"result":${json(item)}}`));
  return create(null, record({ done: record({ value: v === undefined ? null : v, enumerable: true }) }));
}

// yields reports whether v is a generator, or a stream.
export const yields = (v) => typeof v === "object" && v !== null &&
  (typeof v[Symbol.asyncIterator] === "function" || typeof v.next === "function" && typeof v[Symbol.iterator] === "function");

// each gives take what v yields, bytes as text, and returns what v returns. It ends v when take throws: nobody listens any more.
export async function each(v, take) {
  const decoder = new TextDecoder();
  const items = v[Symbol.asyncIterator]?.() ?? v[Symbol.iterator]();
  for (;;) {
    const { done, value } = await items.next();
    if (done) return value;
    const item = value instanceof Uint8Array ? decoder.decode(value, { stream: true }) : value;
    try {
      await take(item);
    } catch (e) {
      await items.return?.();
      throw e;
    }
  }
}
