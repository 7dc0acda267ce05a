// The arguments of tools, which are JSON.
import { TypeErrorClass, isArray, isBuffer, isView, keysOf, list, match, sliceText, stringify, tag } from "./primordials.js";

const plainName = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

// dotted writes a member's name as code does: .name, or ["name"].
export const dotted = (name) => (match(plainName, name) !== null ? `.${name}` : `[${stringify(name)}]`);

// argumentsText returns the JSON of a tool's arguments. What has none is a TypeError that says where it is; what names the call.
export function argumentsText(what, args) {
  if (args === undefined) return "{}";
  if (typeof args !== "object" || args === null || isArray(args)) {
    throw new TypeErrorClass(`${what}: the arguments are an object such as { path: "notes.txt" }, not ${kindOf(args)}`);
  }
  check(what, args, list([]), list([]), 0);
  const text = stringify(args);
  if (text === undefined || text[0] !== "{") throw new TypeErrorClass(`${what}: the arguments are an object, and have the JSON form ${text}`);
  return text;
}

function kindOf(v) {
  if (v === null || v === undefined) return `${v}`;
  if (typeof v !== "object") return typeof v === "number" ? `${v}` : `a ${typeof v}`;
  if (isArray(v)) return "an array";
  return `a ${sliceText(tag(v), 8, -1)}`;
}

// check walks v, which is at depth below the objects in above, by the keys in at.
function check(what, v, above, at, depth) {
  if (typeof v === "number" ? v - v === 0 : typeof v === "string" || typeof v === "boolean" || v === null) return;
  if (typeof v !== "object") throw unfit(what, at, depth, v);
  for (let i = 0; i < depth; i++) if (above[i] === v) throw new TypeErrorClass(`${what}: ${where(at, depth)} holds itself, which has no JSON form`);
  if (typeof v.toJSON === "function") return; // such as a Date, which says itself what it is
  above[depth] = v;
  if (isArray(v)) {
    for (let i = 0; i < v.length; i++) {
      at[depth] = i;
      check(what, v[i], above, at, depth + 1);
    }
    return;
  }
  if (tag(v) !== "[object Object]") throw unfit(what, at, depth, v);
  const keys = keysOf(v);
  for (let i = 0; i < keys.length; i++) {
    if (v[keys[i]] === undefined) continue; // as if it were not there
    at[depth] = keys[i];
    check(what, v[keys[i]], above, at, depth + 1);
  }
}

function where(at, depth) {
  let path = "arguments";
  for (let i = 0; i < depth; i++) path += typeof at[i] === "number" ? `[${at[i]}]` : dotted(at[i]);
  return path;
}

function unfit(what, at, depth, v) {
  const kind = kindOf(v);
  let hint = "";
  if (kind === "a Promise") hint = ": await it first";
  else if (kind === "a Map") hint = ": use Object.fromEntries";
  else if (kind === "a Set") hint = ": use Array.from";
  else if (kind === "a bigint") hint = ": use Number or String";
  else if (isBuffer(v) || isView(v)) hint = ": keep bytes by files.write and pass the path, or write them as the tool wants them";
  return new TypeErrorClass(`${what}: ${where(at, depth)} is ${kind}, which has no JSON form${hint}`);
}
