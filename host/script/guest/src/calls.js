// Calls of other agents, of instances, and runs that are begun.
import { TypeErrorClass, create, freeze, record, setPrototypeOf, stringify, then, toBase64, viewBytes } from "./primordials.js";
import { call, self } from "./durable.js";
import { encode } from "./encoding.js";
import { bodyOf, formOf, JSON_FORM, TEXT_FORM } from "./forms.js";
import { host, newest, openCall, refuseWhileLoading, rejected } from "./host.js";

// callAgent calls a function of another agent of the app.
export function callAgent(name, fn, input) {
  return invoke("callAgent", name, fn, input);
}

function invoke(what, name, fn, input, key, child, send) {
  try {
    refuseWhileLoading(what);
    if (child && name === undefined) name = self().agent;
    if (typeof name !== "string" || typeof fn !== "string") throw new TypeErrorClass(`${what}: the names of an agent and of its function are required`);
    if (key !== undefined && (typeof key !== "string" || key === "")) throw new TypeErrorClass(`${what}: the key of an instance is a text`);
    const form = formOf(input);
    const body = bodyOf(form, input);
    if (key === undefined) host.agent(openCall(), name, fn, form, body);
    else host.agent(openCall(), name, fn, form, body, key, child === true, send === true);
    return newest;
  } catch (e) {
    return rejected(e);
  }
}

// standIn returns an object whose methods make calls.
const standIn = (calls) => new Proxy(create(null), setPrototypeOf({
  get: (_, method) => (typeof method !== "string" || method === "then" || method === "toJSON" ? undefined : (input) => calls(method, input)),
}, null));

// sent forgets what a message is answered with, which is nothing.
const sent = (promise, send) => (send ? then(promise, () => {}) : promise);

// agent returns a stand-in for another agent, or with a key for an instance: its methods call that agent's functions.
export function agent(name, key, options) {
  const send = options?.send === true;
  return standIn((method, input) => sent(invoke("agent", name, method, input, key, false, send), send));
}

// child returns a stand-in for an instance of the caller's own: child(key) of its agent, child(agent, key) of another.
export function child(name, key, options) {
  if (typeof key !== "string") {
    options = key;
    key = name;
    name = undefined;
  }
  const send = options?.send === true;
  return standIn((method, input) => sent(invoke("child", name, method, input, `${key}`, true, send), send));
}

// deleteChild ends an instance of the caller's own. It takes what child takes.
export function deleteChild(name, key) {
  if (key === undefined) {
    key = name;
    name = undefined;
  }
  return call("deleteChild", "child.delete", () => {
    if (typeof key !== "string" || key === "") throw new TypeErrorClass("deleteChild: the key of an instance is a text");
    return stringify(record({ agent: name, key }));
  });
}

// run begins a run of a function, and resolves to a handle of it.
export function run(fn, input, options) {
  return then(call("run", "run.start", () => {
    if (typeof fn !== "string" || fn === "") throw new TypeErrorClass("run: the first argument is the name of a function");
    const q = record({ agent: options?.agent, key: options?.key, function: fn });
    if (input !== undefined) {
      const form = formOf(input);
      const body = bodyOf(form, input);
      q.type = form === JSON_FORM ? "application/json" : form === TEXT_FORM ? "text/plain; charset=utf-8" : "application/octet-stream";
      q.input = toBase64(form === JSON_FORM || form === TEXT_FORM ? encode(body) : viewBytes(body));
    }
    return stringify(q);
  }), (started) => freeze({
    id: started.run,
    sessionId: started.session,
    result: () => call("result", "run.result", () => stringify(record({ run: started.run }))),
  }));
}

// runCode has a script of code mode run for this agent, in a run of its own, and resolves to its result.
export function runCode(code, tools) {
  return then(call("execute", "run.start", () => stringify(record({ function: "", code: `${code}`, tools }))),
    (started) => call("execute", "run.result", () => stringify(record({ run: started.run }))));
}

// outside lets other calls of the instance go first while work is under way, which cannot reach what belongs to the instance.
export async function outside(work) {
  if (typeof work !== "function") throw new TypeErrorClass("outside: the argument is a function");
  await call("outside", "turn.leave", () => "");
  try {
    return await work();
  } finally {
    await call("outside", "turn.enter", () => "");
  }
}
