// Tools of the app: tools.SERVER.METHOD(arguments), and what finds them.
import { ErrorClass, TypeErrorClass, create, defineProperty, freeze, indexOf, isArray, list, parse, record, setPrototypeOf, sliceText, stringify, toWellFormed } from "./primordials.js";
import { argumentsText, dotted } from "./arguments.js";
import { callHost, hidden, host, refuseWhileLoading, rejected, SkepError, state } from "./host.js";

const shown = (value) => record({ value, enumerable: true });

// ToolError is what a call of a tool fails with: kind "denied" when policy or a person refused it, "failed" for an error of the
// tool's own.
export class ToolError extends SkepError {
  constructor(tool, kind, message, more) {
    super(kind, message, more?.limit, more?.hint);
    defineProperty(this, "name", hidden("ToolError"));
    defineProperty(this, "tool", shown(tool));
    if (more?.data !== undefined) defineProperty(this, "data", shown(more.data));
  }
}

// site returns the stack of who calls a function of this file, which the engine would not give an error that arrives later.
export function site() {
  const { stack } = new ErrorClass();
  return typeof stack === "string" ? stack : "";
}

const withStack = (e, stack) => defineProperty(e, "stack", hidden(stack)) && e;

// pathOf writes the name of a tool as code does.
function pathOf(name) {
  const dot = indexOf(name, ".");
  return dot < 0 ? `tools${dotted(name)}` : `tools${dotted(sliceText(name, 0, dot))}${dotted(sliceText(name, dot + 1))}`;
}

// begin makes a call about tools whose answer the code's result waits for, as the driver sees to.
function begin(name, tool, body, stack, read) {
  state.tools = true;
  return callHost((id) => host.call(id, name, body, stack), (text) => {
    const e = parse(text);
    return withStack(new ToolError(tool, e.kind, e.message, e), stack);
  }, undefined, read);
}

const valueOf = (out) => out.value;
const nothing = () => {};

const callText = (what, name, args, mark = "") => `{"tool":${stringify(toWellFormed(name))},"args":${argumentsText(what, args)}${mark}}`;

function invoke(name, args, stack) {
  const what = pathOf(name);
  try {
    refuseWhileLoading(what);
    return begin("tool.call", name, callText(what, name, args), stack, valueOf);
  } catch (e) {
    return rejected(e);
  }
}

// permit calls a tool that stands for what a command-line agent asks to be allowed, under the id of that.
export function permit(tool, args, id) {
  try {
    const what = pathOf(tool);
    refuseWhileLoading(what);
    return begin("tool.call", tool, callText(what, tool, args, `,"permission":${stringify(toWellFormed(id))}`), site(), valueOf);
  } catch (e) {
    return rejected(e);
  }
}

const isName = (name) => typeof name === "string" && indexOf(name, ".") > 0;

function call(name, args) {
  const stack = site();
  if (!isName(name)) {
    return rejected(new TypeErrorClass(`tools.call: the first argument is the name of a tool, such as "files.read", not ${typeof name === "string" ? stringify(name) : `a ${typeof name}`}`));
  }
  return invoke(name, args, stack);
}

// query asks about tools or files. make writes its body and may throw.
export function query(what, name, make, read) {
  const stack = site();
  try {
    refuseWhileLoading(what);
    const body = make();
    return callHost((id) => host.call(id, name, body), stack, undefined, read);
  } catch (e) {
    return rejected(e);
  }
}

function narrowed(what, q, options) {
  if (options === undefined || options === null) return q;
  if (typeof options !== "object") throw new TypeErrorClass(`${what}: the options are an object such as { server: "files", limit: 5 }`);
  if (options.server !== undefined) q.server = `${options.server}`;
  if (options.effect !== undefined) q.effect = `${options.effect}`;
  if (options.schemas) q.schemas = true;
  if (options.limit !== undefined) {
    q.limit = +options.limit;
    if (!(q.limit >= 1) || q.limit % 1 !== 0) throw new TypeErrorClass(`${what}: limit is a whole number from 1 up`);
  }
  return q;
}

// found makes an array of an answer; its property more counts those that there are besides.
const found = (out) => {
  const all = [];
  for (let i = 0; i < out.tools?.length; i++) all[i] = out.tools[i];
  return defineProperty(all, "more", hidden(out.more ?? 0)) && all;
};

const search = (words, options) => query("tools.search", "tool.search", () => {
  if (typeof words !== "string") throw new TypeErrorClass('tools.search: the first argument is words to look for, such as "create issue"');
  return stringify(narrowed("tools.search", record({ query: words }), options));
}, found);

const all = (options) => query("tools.list", "tool.list", () => stringify(narrowed("tools.list", record({}), options)), found);

const describe = (names, options) => query("tools.describe", "tool.describe", () => {
  if (typeof names === "string") names = [names];
  if (!isArray(names) || names.length === 0) throw new TypeErrorClass('tools.describe: the first argument is a name or an array of names, such as "files.*"');
  const q = narrowed("tools.describe", record({ names: list([]) }), options);
  for (let i = 0; i < names.length; i++) {
    if (typeof names[i] !== "string") throw new TypeErrorClass(`tools.describe: names[${i}] is no name`);
    q.names[i] = names[i];
  }
  if (options?.level !== undefined) q.level = `${options.level}`;
  return stringify(q);
}, (out) => out.text ?? "");

// A change is calls that are approved together, with those of their undos that are calls as well. One that fails has those before it taken back.
const mostCalls = 256;

function plan(title, calls) {
  if (typeof title !== "string" || title === "") throw new TypeErrorClass("tools.change: the first argument is a title that whoever approves it reads");
  if (!isArray(calls) || calls.length < 1 || calls.length > mostCalls) {
    throw new TypeErrorClass(`tools.change: the second argument is an array of 1 to ${mostCalls} calls such as { tool: "files.delete", args: { path: "a.txt" } }`);
  }
  const made = list([]);
  for (let i = 0; i < calls.length; i++) {
    const what = `tools.change: call ${i + 1}`;
    const c = calls[i];
    if (!isName(c?.tool)) throw new TypeErrorClass(`${what}: tool is the name of a tool, such as "files.write"`);
    const { undo } = c;
    let back;
    if (typeof undo === "function") back = undo;
    else if (undo !== undefined && undo !== null) {
      if (!isName(undo.tool)) throw new TypeErrorClass(`${what}: undo is a call such as { tool, args }, or a function`);
      back = record({ tool: undo.tool, text: callText(`${what}, undo`, undo.tool, undo.args, ',"undo":true') });
    }
    made[i] = record({ tool: c.tool, args: c.args, text: callText(what, c.tool, c.args), back });
  }
  return made;
}

function change(title, calls) {
  const stack = site();
  try {
    refuseWhileLoading("tools.change");
    const made = plan(title, calls);
    let text = "";
    for (let i = 0; i < made.length; i++) {
      const { back } = made[i];
      text += (i > 0 ? "," : "") + made[i].text;
      if (back !== undefined && typeof back !== "function") text += `,${back.text}`;
    }
    const asked = begin("tool.change", made.length === 1 ? made[0].tool : "", `{"title":${stringify(toWellFormed(title))},"calls":[${text}]}`, stack, nothing);
    return carryOut(asked, made, stack);
  } catch (e) {
    return rejected(e);
  }
}

async function carryOut(asked, made, stack) {
  await asked;
  const results = [];
  for (let i = 0; i < made.length; i++) {
    try {
      results[i] = await begin("tool.call", made[i].tool, made[i].text, stack, valueOf);
    } catch (e) {
      throw await takenBack(e, made, results, i, stack);
    }
  }
  return results;
}

// takenBack undoes the calls before the one that failed, the latest first, and returns the error that says so.
async function takenBack(e, made, results, failed, stack) {
  const data = { failed: failed + 1, undone: [], kept: [] };
  let text = "";
  for (let i = failed - 1; i >= 0; i--) {
    const { tool, args, back } = made[i];
    let why = "it has no undo";
    if (back !== undefined) {
      try {
        if (typeof back === "function") await back(results[i], args);
        else await begin("tool.call", back.tool, back.text, stack, nothing);
        data.undone[data.undone.length] = { call: i + 1, tool };
        text += `; call ${i + 1}, ${tool}, was undone`;
        continue;
      } catch (x) {
        why = `its undo failed: ${messageOf(x)}`;
      }
    }
    data.kept[data.kept.length] = { call: i + 1, tool, why };
    text += `; call ${i + 1}, ${tool}, was not undone: ${why}`;
  }
  const message = `call ${failed + 1} of ${made.length}, ${made[failed].tool}, failed: ${messageOf(e)}${text}`;
  const error = new ToolError(made[failed].tool, e?.kind ?? "failed", message, { limit: e?.limit, hint: e?.hint, data });
  defineProperty(error, "cause", hidden(e));
  return withStack(error, stack);
}

function messageOf(e) {
  try {
    return typeof e === "object" && e !== null ? `${e.message}` : `${e}`;
  } catch {
    return "an error that cannot be shown";
  }
}

const readOnly = (what) => () => {
  throw new TypeErrorClass(`${what} cannot be changed`);
};

// trapped are the traps of an object that only reads: nothing of it can be set, and it is no promise.
const trapped = (what, get) => setPrototypeOf({
  get: (_, k) => (typeof k !== "string" || k === "then" || k === "toJSON" ? undefined : get(k)),
  set: readOnly(what), defineProperty: readOnly(what), deleteProperty: readOnly(what), setPrototypeOf: readOnly(what),
}, null);

const server = (name) => new Proxy(freeze(create(null)), trapped(`tools${dotted(name)}`, (method) => {
  const tool = `${name}.${method}`;
  return (args) => invoke(tool, args, site());
}));

const own = record({ call, change, describe, list: all, search });

export const tools = new Proxy(freeze(create(null)), trapped("tools", (name) => own[name] ?? server(name)));
