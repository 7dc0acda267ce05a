// The author's module: what it exports, and the object of its default export.
import { ObjectPrototype, apply, construct, create, endsWith, functionSource, getOwnPropertyDescriptor, getPrototypeOf, includes, list, ownKeys, parse, record, setPrototypeOf, startsWith, stringify } from "./primordials.js";
import { JSON_FORM } from "./forms.js";

// The author's module, once it is loaded. What is called of an object with functions is called of one that inherits from it and
// from base, so that no call changes what a later one gets.
const module = record({ namespace: null, main: undefined, isClass: false, callable: create(null), fetch: false, surface: undefined, chat: undefined });

const isClass = (f) => typeof f === "function" && startsWith(functionSource(f), "class");

// isBuiltIn reports whether p is a prototype that the language brings: Object's, Array's, Promise's; or that of our own class. That of agents that chat has
// functions for clients.
function isBuiltIn(p, base) {
  if (p === module.chat) return false;
  const c = getOwnPropertyDescriptor(p, "constructor");
  return p === ObjectPrototype || p === base || (c !== undefined && typeof c.value === "function" && endsWith(functionSource(c.value), "[native code]\n}"));
}

// ownFunctions calls add with the name of each function that o or a prototype of the author's has.
function ownFunctions(o, base, add) {
  for (let p = o; p !== null && !isBuiltIn(p, base); p = getPrototypeOf(p)) {
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

// INITIAL is listed among the exports although it is mostly no function, so that the host knows that there is a state to begin
// with.
const INITIAL = "initialState";

// hasInitial reports whether the code has one. A class shows its fields only in its text; to be wrong there costs one call.
function hasInitial(ns, main, base) {
  if (ns[INITIAL] !== undefined) return true;
  if (typeof main === "object" && main !== null) return INITIAL in main;
  if (!module.isClass) return false;
  for (let c = main; typeof c === "function" && c.prototype !== base; c = getPrototypeOf(c)) if (includes(functionSource(c), INITIAL)) return true;
  return false;
}

// hooks are methods of an agent that chats which only it calls.
const hooks = setPrototypeOf({ functions: true, instructions: true, onError: true, onReply: true, onToolCall: true }, null);

function inherits(o, from) {
  for (let p = o; p !== null; p = getPrototypeOf(p)) if (p === from) return true;
  return false;
}

// inspectModule finds out what may be called. A method of the default export hides a named export. base is the prototype of
// our own class; extend puts what it has on an object that has no class.
// chat is that of agents that chat, whose hooks no client may call.
export function inspectModule(ns, base, extend, chat) {
  module.namespace = ns;
  module.chat = chat;
  const names = ownKeys(ns);
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (typeof name !== "string" || name === "default" || startsWith(name, "skep:")) continue;
    const v = ns[name];
    if (typeof v === "function" && !isClass(v)) module.callable[name] = EXPORT;
  }
  const main = (module.main = ns.default);
  module.isClass = isClass(main);
  const isObject = typeof main === "object" && main !== null;
  const chats = module.isClass && inherits(main.prototype, chat);
  const method = (k) => {
    if (!startsWith(k, "skep:") && !(chats && hooks[k])) module.callable[k] = METHOD;
  };
  if (module.isClass) ownFunctions(main.prototype, base, method);
  else if (typeof main === "function") module.callable.default = EXPORT;
  else if (isObject) ownFunctions(main, base, method);
  if (isObject) extend((module.surface = create(main)));
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
  if (module.isClass) ownFunctions(main.prototype, base, note);
  else if (isObject) ownFunctions(main, base, note);
  if (!seen[INITIAL] && hasInitial(ns, main, base)) exports[n] = INITIAL;
  return stringify(record({ exports, fetch: module.fetch }));
}

let instance; // of the default export; one for each cell
let making = false;
let makeArgs; // what a class is made with

export function makeWith(args) {
  makeArgs = args;
}

// theInstance makes the object of the default export. While its class makes it, it is not there yet.
export function theInstance() {
  if (instance !== undefined || making) return instance;
  if (!module.isClass) return (instance = create(module.surface));
  making = true;
  try {
    return (instance = construct(module.main, makeArgs));
  } finally {
    making = false;
  }
}

// born is told of an object of our own class while it is made, so that its fields' initialisers can use it.
export function born(o) {
  if (making) instance ??= o;
}

// isCallable reports whether there is a function of that name.
export const isCallable = (name) => module.callable[name] !== undefined;

// member returns a member of the default export's object or, where it has none of that name, a named export.
export function member(name) {
  if (module.isClass || module.surface !== undefined) {
    const v = theInstance()?.[name];
    if (v !== undefined) return v;
  }
  return module.namespace?.[name];
}

// handler returns a function of the author's that calls the handler of that name, or undefined when there is none.
export function handler(name) {
  const f = member(name);
  if (typeof f !== "function") return undefined;
  return (...args) => apply(f, instance, args);
}

// called returns what the function of that name returns; where there is none, what otherwise does.
export function called(name, form, input, context, otherwise) {
  if (name === "") {
    // A script without functions is its default export.
    if (module.callable.default) name = "default";
    else if (ownKeys(module.callable).length === 0 && !module.isClass) return module.main;
  }
  const where = module.callable[name];
  if (where === undefined) return otherwise(name, input);
  const v = form !== JSON_FORM ? input : input === "" ? undefined : parse(input);
  if (where === METHOD) return theInstance()[name](v, context);
  const f = module.namespace[name];
  return f(v, context);
}

// calledWith calls a function with several arguments. An export has nothing but the context to reach its surroundings by, so it
// gets one after a single argument.
export function calledWith(name, args, context) {
  if (module.callable[name] === METHOD) {
    const o = theInstance();
    return apply(o[name], o, args);
  }
  return apply(module.namespace[name], undefined, args.length < 2 ? [args[0], context] : args);
}
