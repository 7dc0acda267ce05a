// console, and how values look in it.
import { functionSource, getOwnPropertyDescriptor, getPrototypeOf, isArray, ownKeys, startsWith } from "./primordials.js";
import { define, host } from "./host.js";

const TRACE = 0, DEBUG = 1, INFO = 2, WARN = 3, ERROR = 4;
const MAX_DEPTH = 4, MAX_ITEMS = 100, MAX_STRING = 10_000, MAX_LINE = 65_536, MAX_VALUES = 2_000;

const cut = (s, n) => (s.length > n ? s.slice(0, n) + `... ${s.length - n} more characters` : s);
const plainKey = /^[A-Za-z_$][\w$]*$/;

function className(o) {
  for (let p = getPrototypeOf(o); p !== null; p = getPrototypeOf(p)) {
    const d = getOwnPropertyDescriptor(p, "constructor");
    if (d && typeof d.value === "function") return String(d.value.name);
  }
  return "[Object: null prototype]";
}

// errorText shows an error as its stack, its cause and its parts.
export function errorText(e, depth = 0) {
  let text = `${e.name}: ${e.message}`;
  if (e.message === "") text = String(e.name);
  if (typeof e.stack === "string" && e.stack !== "") text += "\n" + e.stack.trimEnd();
  if (depth < MAX_DEPTH) {
    if (e.cause !== undefined) text += "\n  [cause]: " + inspect(e.cause, depth + 1);
    if (isArray(e.errors)) for (const x of e.errors.slice(0, 10)) text += "\n  [errors]: " + inspect(x, depth + 1);
  }
  return text;
}

function items(open, list, total, close) {
  if (total > list.length) list.push(`... ${total - list.length} more`);
  if (list.length === 0) return open + close;
  const line = list.join(", ");
  const pad = open === "[" ? "" : " ";
  if (line.length <= 100 && !line.includes("\n")) return open + pad + line + pad + close;
  return open + "\n  " + list.map((s) => s.replaceAll("\n", "\n  ")).join(",\n  ") + "\n" + close;
}

let left = 0; // values that the line being written may still show

export function inspect(v, depth = 0, seen = [], top = false) {
  if (--left < 0 && depth > 0) return "...";
  switch (typeof v) {
    case "string": return top ? v : JSON.stringify(cut(v, MAX_STRING));
    case "bigint": return `${v}n`;
    case "symbol": return v.toString();
    case "number": return Object.is(v, -0) ? "-0" : String(v);
    case "function": return startsWith(functionSource(v), "class") ? `[class ${v.name || "(anonymous)"}]` : `[Function: ${v.name || "(anonymous)"}]`;
    case "object": break;
    default: return String(v);
  }
  if (v === null) return "null";
  if (seen.includes(v)) return "[Circular]";
  if (Error.isError(v)) return errorText(v, depth);
  if (v instanceof Date) return isNaN(v) ? "Invalid Date" : v.toISOString();
  if (v instanceof RegExp) return String(v);
  if (v instanceof Promise) return "Promise { ... }";
  const name = className(v);
  if (depth > MAX_DEPTH) return isArray(v) ? "[Array]" : `[${name}]`;
  seen = [...seen, v];
  const show = (x) => inspect(x, depth + 1, seen);
  if (isArray(v)) {
    const list = [];
    for (let i = 0; i < v.length && i < MAX_ITEMS; i++) list.push(i in v ? show(v[i]) : "<empty>");
    return items("[", list, v.length, "]");
  }
  if (v instanceof Map) return items(`Map(${v.size}) {`, [...v].slice(0, MAX_ITEMS).map(([k, x]) => `${show(k)} => ${show(x)}`), v.size, "}");
  if (v instanceof Set) return items(`Set(${v.size}) {`, [...v].slice(0, MAX_ITEMS).map(show), v.size, "}");
  if (v instanceof ArrayBuffer) return `ArrayBuffer { byteLength: ${v.byteLength} }`;
  if (ArrayBuffer.isView(v) && !(v instanceof DataView)) return `${name}(${v.length}) ` + items("[", Array.from(v.subarray(0, MAX_ITEMS), String), v.length, "]");
  const keys = ownKeys(v).filter((k) => getOwnPropertyDescriptor(v, k)?.enumerable);
  const list = keys.slice(0, MAX_ITEMS).map((k) => {
    const d = getOwnPropertyDescriptor(v, k);
    const label = typeof k === "symbol" ? `[${k.toString()}]` : plainKey.test(k) ? k : JSON.stringify(k);
    return `${label}: ${d.get ? "[Getter]" : d.set ? "[Setter]" : show(d.value)}`;
  });
  if (keys.length === 0 && typeof v.href === "string" && v instanceof URL) return v.href;
  return items((name === "Object" ? "" : name + " ") + "{", list, keys.length, "}");
}

// format joins arguments the way console.log does, with the %-directives of the Console Standard.
export function format(args) {
  left = MAX_VALUES;
  let i = 0;
  let text = "";
  if (typeof args[0] === "string") {
    i = 1;
    text = args[0].replace(/%[sdifjoOc%]/g, (d) => {
      if (d === "%%") return "%";
      if (i >= args.length) return d;
      const v = args[i++];
      switch (d) {
        case "%s": return typeof v === "object" && v !== null ? inspect(v) : String(v);
        case "%d": return typeof v === "symbol" ? "NaN" : String(Number(v));
        case "%i": return typeof v === "symbol" ? "NaN" : String(parseInt(v, 10));
        case "%f": return typeof v === "symbol" ? "NaN" : String(parseFloat(v));
        case "%j": return JSON.stringify(v);
        case "%c": return "";
        default: return inspect(v);
      }
    });
  }
  for (; i < args.length; i++) text += (i > 0 ? " " : "") + inspect(args[i], 0, [], true);
  return text;
}

let indent = "";
const counts = new Map();
const clocks = new Map();

function write(level, args) {
  let text;
  try {
    text = format(args);
  } catch {
    text = "(a value that cannot be shown)";
  }
  if (indent) text = indent + text.replaceAll("\n", "\n" + indent);
  host.log(level, cut(text, MAX_LINE));
}

// report logs an error that nothing caught.
export function report(e, prefix = "Uncaught") {
  write(ERROR, [prefix, e]);
}

function table(data) {
  if (typeof data !== "object" || data === null) return [data];
  const rows = Object.entries(data);
  const columns = [...new Set(rows.flatMap(([, r]) => (typeof r === "object" && r !== null ? Object.keys(r) : ["value"])))];
  const cells = [["", ...columns], ...rows.map(([k, r]) => [k, ...columns.map((c) => (typeof r === "object" && r !== null ? (c in r ? inspect(r[c]) : "") : c === "value" ? inspect(r) : ""))])];
  const widths = cells[0].map((_, i) => Math.max(...cells.map((r) => r[i].length)));
  return [cells.map((r) => r.map((s, i) => s.padEnd(widths[i])).join(" | ").trimEnd()).join("\n")];
}

const elapsed = (label) => `${label}: ${(performance.now() - clocks.get(label)).toFixed(3)} ms`;

export const console = {
  log(...a) { write(INFO, a); },
  info(...a) { write(INFO, a); },
  debug(...a) { write(DEBUG, a); },
  warn(...a) { write(WARN, a); },
  error(...a) { write(ERROR, a); },
  trace(...a) { write(TRACE, [...a, "\n" + new Error().stack]); },
  dir(v) { write(INFO, [v]); },
  dirxml(...a) { write(INFO, a); },
  table(data) { write(INFO, table(data)); },
  assert(ok, ...a) { if (!ok) write(ERROR, typeof a[0] === "string" ? ["Assertion failed: " + a[0], ...a.slice(1)] : ["Assertion failed", ...a]); },
  group(...a) {
    if (a.length) write(INFO, a);
    if (indent.length < 40) indent += "  ";
  },
  groupEnd() { indent = indent.slice(2); },
  count(label = "default") {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    write(INFO, [`${label}: ${counts.get(label)}`]);
  },
  countReset(label = "default") { counts.delete(label); },
  time(label = "default") { clocks.set(label, performance.now()); },
  timeLog(label = "default", ...a) { if (clocks.has(label)) write(INFO, [elapsed(label), ...a]); },
  timeEnd(label = "default") {
    if (clocks.has(label)) write(INFO, [elapsed(label)]);
    clocks.delete(label);
  },
};
console.groupCollapsed = console.group;

define({ console, reportError: function reportError(e) { report(e); } });
