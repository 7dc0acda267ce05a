// Interprets a program of package program, which has checked it before. What it does to the world it does by tools.call and tools.change, so
// grants, policy, approvals and the journal are those of any script.

type JSONValue = null | boolean | number | string | JSONValue[] | { [key: string]: JSONValue };
interface Call { tool: string; args: JSONValue; undo?: { tool: string; args: JSONValue } }
interface ToolInfo { name: string; effect: string }
declare const tools: {
  list(): Promise<ToolInfo[] | { tools: ToolInfo[] }>;
  call(tool: string, args: JSONValue): Promise<JSONValue>;
  change(title: string, calls: Call[]): Promise<JSONValue[]>;
};

interface Limits { steps: number; rounds: number; calls: number; text: number; output: number; lines: number; edits: number }
interface Step { step: string; [field: string]: any }
interface Input { program: { steps: Step[] }; input: JSONValue; tools: string[]; limits: Limits }

// A block's names, and those of the blocks around it.
class Scope {
  names = new Map<string, JSONValue>();
  constructor(readonly outer: Scope | null) {}
  home(name: string): Scope | null {
    return this.names.has(name) ? this : this.outer === null ? null : this.outer.home(name);
  }
}

const returned = Symbol("returned");

export default async function run({ program, input, tools: granted, limits }: Input): Promise<JSONValue> {
  const list = await tools.list();
  const effects = new Map((Array.isArray(list) ? list : list.tools).map((t) => [t.name, t.effect]));
  for (const name of granted) if (!effects.has(name)) throw new Error(`there is no tool ${JSON.stringify(name)} that this agent is granted`);
  reads(program.steps, "/steps", effects);

  const scope = new Scope(null);
  scope.names.set("input", input);
  const m = new Machine(limits);
  await m.block(program.steps, "/steps", scope);
  return m.result;
}

// reads refuses steps that would call tools of other effects than read, before the first of them is made.
function reads(steps: Step[], at: string, effects: Map<string, string>) {
  steps.forEach((s, i) => {
    const here = `${at}/${i}`;
    const effect = typeof s.tool === "string" ? effects.get(s.tool) : undefined;
    if (effect !== undefined && effect !== "read") {
      throw fault(here, `the effect of ${s.tool} is ${effect}: what is not read goes into a change_set`);
    }
    for (const block of ["steps", "then", "else"]) if (Array.isArray(s[block])) reads(s[block], `${here}/${block}`, effects);
  });
}

class Machine {
  ran = 0;
  result: JSONValue = null;
  constructor(readonly limits: Limits) {}

  async block(steps: Step[], at: string, scope: Scope): Promise<typeof returned | void> {
    for (let i = 0; i < steps.length; i++) {
      const here = `${at}/${i}`;
      if (++this.ran > this.limits.steps) throw fault(here, `the program has run ${this.limits.steps} steps, which is the most`);
      if ((await this.step(steps[i], here, scope)) === returned) return returned;
    }
  }

  async step(s: Step, at: string, scope: Scope): Promise<typeof returned | void> {
    const keep = (v: JSONValue) => {
      if (s.as !== undefined) scope.names.set(s.as, v);
    };
    switch (s.step) {
      case "list":
      case "search": {
        const all = asList(await this.tool(s, at, scope), at);
        return keep(s.limit === undefined ? all : all.slice(0, s.limit));
      }
      case "read":
        return keep(asText(await this.tool(s, at, scope)));
      case "call":
        return keep(await this.tool(s, at, scope));
      case "diff": {
        const [a, b] = ["before", "after"].map((f) => shown(this.value(s[f], `${at}/${f}`, scope)));
        const name = s.name === undefined ? "value" : this.text(s.name, `${at}/name`, scope);
        return keep(diff(a, b, name, at, this.limits));
      }
      case "set": {
        const home = scope.home(s.name) ?? scope;
        if (s.append === undefined) {
          home.names.set(s.name, this.value(s.value, `${at}/value`, scope));
          return;
        }
        const old = home.names.get(s.name) ?? [];
        if (!Array.isArray(old)) throw fault(at, `${s.name} is ${kind(old)}, to which nothing can be appended`);
        home.names.set(s.name, [...old, this.value(s.append, `${at}/append`, scope)]);
        return;
      }
      case "repeat":
        return this.repeat(s, at, scope);
      case "if_contains": {
        const text = this.text(s.text, `${at}/text`, scope);
        const has = text !== "" && shown(this.value(s.value, `${at}/value`, scope)).includes(text);
        const block = has ? "then" : "else";
        return s[block] === undefined ? undefined : this.block(s[block], `${at}/${block}`, new Scope(scope));
      }
      case "change_set":
        return keep(await this.change(s, at, scope));
      case "return": {
        this.result = s.value === undefined ? null : this.value(s.value, `${at}/value`, scope);
        const size = new TextEncoder().encode(JSON.stringify(this.result)).length;
        if (size > this.limits.output) {
          throw fault(at, `the result has ${size} bytes, more than ${this.limits.output}: return a part of it, or write it to a file`);
        }
        return returned;
      }
    }
    throw fault(at, `there is no step ${JSON.stringify(s.step)}`);
  }

  async tool(s: Step, at: string, scope: Scope): Promise<JSONValue> {
    const args = s.args === undefined ? {} : this.value(s.args, `${at}/args`, scope);
    return placed(at, () => tools.call(s.tool, args));
  }

  async repeat(s: Step, at: string, scope: Scope): Promise<typeof returned | void> {
    let items: JSONValue[] | null = null;
    if (s.over !== undefined) {
      const over = this.value(s.over, `${at}/over`, scope);
      if (!Array.isArray(over)) throw fault(`${at}/over`, `this is ${kind(over)}, and must be a list`);
      items = over;
    }
    const rounds = items === null ? s.times : items.length;
    if (rounds > this.limits.rounds) {
      throw fault(`${at}/over`, `the list has ${rounds} items, and a repeat has at most ${this.limits.rounds} rounds: give the list a limit`);
    }
    for (let i = 0; i < rounds; i++) {
      const inner = new Scope(scope);
      inner.names.set("index", i);
      if (s.as !== undefined) inner.names.set(s.as, items === null ? i : items[i]);
      if ((await this.block(s.steps, `${at}/steps`, inner)) === returned) return returned;
    }
  }

  async change(s: Step, at: string, scope: Scope): Promise<JSONValue[]> {
    const calls: Call[] = [];
    for (let i = 0; i < s.calls.length; i++) {
      const c = s.calls[i], here = `${at}/calls/${i}`;
      if (c.over === undefined) {
        calls.push(this.planned(c, here, scope));
        continue;
      }
      const over = this.value(c.over, `${here}/over`, scope);
      if (!Array.isArray(over)) throw fault(`${here}/over`, `this is ${kind(over)}, and must be a list`);
      over.slice(0, this.limits.calls + 1).forEach((item, n) => {
        const inner = new Scope(scope);
        inner.names.set("index", n);
        if (c.as !== undefined) inner.names.set(c.as, item);
        calls.push(this.planned(c, here, inner));
      });
    }
    if (calls.length > this.limits.calls) throw fault(at, `the change set has more than ${this.limits.calls} calls`);
    if (calls.length === 0) return [];
    const title = this.text(s.title, `${at}/title`, scope);
    if (title === "" || title.length > 500) throw fault(`${at}/title`, `the title has ${title.length} characters, and must have 1 to 500`);
    return placed(at, () => tools.change(title, calls));
  }

  planned(c: any, at: string, scope: Scope): Call {
    const args = (of: any, here: string) => (of.args === undefined ? {} : this.value(of.args, `${here}/args`, scope));
    const out: Call = { tool: c.tool, args: args(c, at) };
    if (c.undo !== undefined) out.undo = { tool: c.undo.tool, args: args(c.undo, `${at}/undo`) };
    return out;
  }

  // value puts what references name in their place.
  value(v: JSONValue, at: string, scope: Scope): JSONValue {
    if (typeof v === "string") return this.template(v, at, scope);
    if (Array.isArray(v)) return v.map((item, i) => this.value(item, `${at}/${i}`, scope));
    if (typeof v === "object" && v !== null) {
      return Object.fromEntries(Object.entries(v).map(([k, item]) => [k, this.value(item, `${at}/${escaped(k)}`, scope)]));
    }
    return v;
  }

  text(v: string, at: string, scope: Scope): string {
    return shown(this.template(v, at, scope));
  }

  template(text: string, at: string, scope: Scope): JSONValue {
    const parts = split(text);
    if (parts.length === 1 && parts[0].ref !== undefined) return lookup(parts[0].ref, at, scope);
    const out = parts.map((p) => (p.ref === undefined ? p.text! : shown(lookup(p.ref, at, scope)))).join("");
    if (out.length > this.limits.text) throw fault(at, `the text has ${out.length} characters, more than ${this.limits.text}`);
    return out;
  }
}

// split takes a template apart: texts, and references between ${ and }. $${ stands for the characters ${.
function split(text: string): { text?: string; ref?: string }[] {
  const out: { text?: string; ref?: string }[] = [];
  let plain = "", from = 0;
  for (let i = text.indexOf("${"); i >= 0; i = text.indexOf("${", from)) {
    if (i > from && text[i - 1] === "$") {
      plain += text.slice(from, i - 1) + "${";
      from = i + 2;
      continue;
    }
    plain += text.slice(from, i);
    if (plain !== "") out.push({ text: plain });
    plain = "";
    const end = text.indexOf("}", i);
    out.push({ ref: text.slice(i + 2, end) });
    from = end + 1;
  }
  plain += text.slice(from);
  if (plain !== "" || out.length === 0) out.push({ text: plain });
  return out;
}

// lookup follows NAME.a.0, or NAME and a JSON Pointer (RFC 6901).
function lookup(ref: string, at: string, scope: Scope): JSONValue {
  const name = /^[A-Za-z_][A-Za-z0-9_]*/.exec(ref)![0];
  const rest = ref.slice(name.length);
  const path = rest === "" ? [] : rest[0] === "." ? rest.slice(1).split(".") : rest.slice(1).split("/").map((s) => s.replaceAll("~1", "/").replaceAll("~0", "~"));
  let v = scope.home(name)?.names.get(name);
  if (v === undefined) throw fault(at, `there is nothing called ${name} yet`);
  for (const key of path) {
    const next: JSONValue | undefined = Array.isArray(v) ? (/^(0|[1-9][0-9]*)$/.test(key) ? v[Number(key)] : undefined)
      : typeof v === "object" && v !== null && Object.hasOwn(v, key) ? v[key] : undefined;
    if (next === undefined) throw fault(at, `\${${ref}} leads nowhere: there is no ${JSON.stringify(key)} in ${contents(v)}`);
    v = next;
  }
  return v;
}

function contents(v: JSONValue): string {
  if (Array.isArray(v)) return `a list of ${v.length}`;
  if (typeof v !== "object" || v === null) return kind(v);
  const keys = Object.keys(v);
  return `an object with ${keys.slice(0, 10).join(", ") || "nothing"}${keys.length > 10 ? ", ..." : ""}`;
}

function kind(v: JSONValue): string {
  return v === null ? "null" : Array.isArray(v) ? "a list" : typeof v === "object" ? "an object" : `a ${typeof v}`;
}

// shown is a value as text: a string as it is, all else as JSON.
function shown(v: JSONValue): string {
  return typeof v === "string" ? v : JSON.stringify(v);
}

function escaped(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}

// asList finds the list in a tool's result: the result itself, its only member, its only member that is a list, or the lines of a text.
function asList(v: JSONValue, at: string): JSONValue[] {
  if (Array.isArray(v)) return v;
  if (v === null) return [];
  if (typeof v === "string") return v.split("\n").map((l) => l.replace(/\r$/, "")).filter((l) => l !== "");
  if (typeof v === "object") {
    const members = Object.values(v), lists = members.filter(Array.isArray);
    if (members.length === 1 && members[0] !== null && typeof members[0] !== "number" && typeof members[0] !== "boolean") return asList(members[0], at);
    if (lists.length === 1) return lists[0];
  }
  throw fault(at, `the result is ${contents(v)}, in which no list can be told: use the step call, and refer to the part that is meant`);
}

// asText is the text of a result that is one: the result itself, its only member, or its member text or content. Another result stays as it is.
function asText(v: JSONValue): JSONValue {
  if (typeof v !== "object" || v === null || Array.isArray(v)) return v;
  const members = Object.values(v), only = members.length === 1 ? members[0] : undefined;
  return [only, v.text, v.content].find((t) => typeof t === "string") ?? v;
}

function fault(at: string, message: string): Error {
  return new Error(`${at}: ${message}`);
}

// placed names the step in what f throws, which stays the error that it is.
async function placed<T>(at: string, f: () => Promise<T>): Promise<T> {
  try {
    return await f();
  } catch (e) {
    if (e instanceof Error) {
      e.message = `${at}: ${e.message}`;
      throw e;
    }
    throw fault(at, String(e));
  }
}

// diff is a unified diff with three lines of context, by Myers' algorithm ("An O(ND) Difference Algorithm", 1986). Texts that have more in
// difference than it looks for are shown as one that takes the place of the other.
function diff(before: string, after: string, name: string, at: string, limits: Limits): string {
  if (before === after) return "";
  const a = lines(before), b = lines(after);
  for (const text of [a, b]) if (text.length > limits.lines) throw fault(at, `a text has ${text.length} lines, and a diff takes at most ${limits.lines}`);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const edits = [
    ...a.slice(0, head).map((l) => " " + l),
    ...myers(a.slice(head, a.length - tail), b.slice(head, b.length - tail), limits.edits),
    ...a.slice(a.length - tail).map((l) => " " + l),
  ];
  const title = name.replace(/[\r\n\t]/g, " ");
  return `--- a/${title}\n+++ b/${title}\n` + hunks(edits);
}

// lines are a text's lines with their ends. The last may have none.
function lines(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function myers(a: string[], b: string[], most: number): string[] {
  const n = a.length, m = b.length;
  const trace: Int32Array[] = []; // by number of edits: how far each diagonal comes with them, at its number and that of the edits and 1
  for (let d = 0; d <= Math.min(n + m, most); d++) {
    const far = new Int32Array(2 * d + 3), was = trace[d - 1];
    for (let k = -d; k <= d; k += 2) {
      let x = d === 0 ? 0 : isInsertion(was, k, d) ? was[k + 1 + d] : was[k - 1 + d] + 1;
      let y = x - k;
      while (x < n && y < m && a[x] === b[y]) x++, y++;
      far[k + d + 1] = x;
      if (x >= n && y >= m) return walk(a, b, trace, d);
    }
    trace.push(far);
  }
  return [...a.map((l) => "-" + l), ...b.map((l) => "+" + l)];
}

function isInsertion(was: Int32Array, k: number, d: number): boolean {
  return k === -d || (k !== d && was[k - 1 + d] < was[k + 1 + d]);
}

function walk(a: string[], b: string[], trace: Int32Array[], d: number): string[] {
  const out: string[] = [];
  let x = a.length, y = b.length;
  for (; d > 0; d--) {
    const was = trace[d - 1], k = x - y, inserted = isInsertion(was, k, d);
    const from = inserted ? was[k + 1 + d] : was[k - 1 + d] + 1;
    while (x > from) out.push(" " + a[--x]), y--;
    out.push(inserted ? "+" + b[--y] : "-" + a[--x]);
  }
  while (x > 0) out.push(" " + a[--x]);
  return out.reverse();
}

function hunks(edits: string[]): string {
  const context = 3;
  let out = "", oldLine = 1, newLine = 1;
  for (let i = 0; i < edits.length; ) {
    if (edits[i][0] === " ") {
      i++, oldLine++, newLine++;
      continue;
    }
    let end = i, same = 0;
    for (let j = i; j < edits.length && same <= 2 * context; j++) {
      if (edits[j][0] === " ") same++;
      else (same = 0), (end = j + 1);
    }
    const from = Math.max(0, i - context), to = Math.min(edits.length, end + context), part = edits.slice(from, to);
    const before = part.filter((e) => e[0] !== "+").length, after = part.filter((e) => e[0] !== "-").length;
    const [o, n] = [oldLine - (i - from), newLine - (i - from)];
    out += `@@ -${before === 0 ? o - 1 : o},${before} +${after === 0 ? n - 1 : n},${after} @@\n`;
    for (const e of part) out += e.endsWith("\n") ? e : e + "\n\\ No newline at end of file\n";
    for (const e of edits.slice(i, to)) {
      if (e[0] !== "+") oldLine++;
      if (e[0] !== "-") newLine++;
    }
    i = to;
  }
  return out;
}
