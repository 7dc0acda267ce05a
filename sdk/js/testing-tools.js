// The tools, files and skills of an agent under test.

import { SkepError, ToolError } from "./index.js";

const nameOf = (key) => (/^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`);

// pathOf writes a tool's name as code does.
function pathOf(name) {
  const dot = name.indexOf(".");
  return dot < 0 ? `tools${nameOf(name)}` : `tools${nameOf(name.slice(0, dot))}${nameOf(name.slice(dot + 1))}`;
}

const identifier = (name) => name.replace(/[^\w$.]/g, "_");
const kindOf = (v) => (v === null || v === undefined ? `${v}` : typeof v === "number" ? `${v}` : Array.isArray(v) ? "an array" : typeof v === "object" ? `a ${Object.prototype.toString.call(v).slice(8, -1)}` : `a ${typeof v}`);
const hints = { "a Promise": ": await it first", "a Map": ": use Object.fromEntries", "a Set": ": use Array.from", "a bigint": ": use Number or String" };

// checked returns arguments as the tool gets them, or throws a TypeError that names what has no JSON form.
function checked(what, args) {
  if (args === undefined) return {};
  if (typeof args !== "object" || args === null || Array.isArray(args)) {
    throw new TypeError(`${what}: the arguments are an object such as { path: "notes.txt" }, not ${kindOf(args)}`);
  }
  check(what, args, "arguments", []);
  return JSON.parse(JSON.stringify(args));
}

function check(what, v, path, above) {
  if (typeof v === "number" ? Number.isFinite(v) : typeof v === "string" || typeof v === "boolean" || v === null) return;
  if (above.includes(v)) throw new TypeError(`${what}: ${path} holds itself, which has no JSON form`);
  if (typeof v === "object" && typeof v.toJSON === "function" && !(v instanceof Uint8Array)) return;
  if (Array.isArray(v)) {
    for (let i = 0; i < v.length; i++) check(what, v[i], `${path}[${i}]`, [...above, v]); // holes, too
  } else if (typeof v === "object" && Object.prototype.toString.call(v) === "[object Object]") {
    for (const [key, x] of Object.entries(v)) if (x !== undefined) check(what, x, path + nameOf(key), [...above, v]);
  } else throw new TypeError(`${what}: ${path} is ${kindOf(v)}, which has no JSON form${hints[kindOf(v)] ?? ""}`);
}

function errorOf(tool, e) {
  if (e instanceof ToolError) return e;
  const more = { limit: e?.limit, hint: e?.hint };
  const error = new ToolError(tool, e instanceof SkepError ? e.kind : "failed", e instanceof Error ? e.message : String(e), more);
  error.cause = e;
  return error;
}

const utf8 = new TextEncoder();

function contentOf(data) {
  if (typeof data === "string") return { type: "text/plain; charset=utf-8", body: utf8.encode(data) };
  if (data instanceof ArrayBuffer) return { type: "application/octet-stream", body: new Uint8Array(data.slice(0)) };
  if (ArrayBuffer.isView(data)) return { type: "application/octet-stream", body: new Uint8Array(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength)) };
  const text = JSON.stringify(data);
  if (text === undefined) throw new TypeError(`files.write: ${typeof data} cannot be written: give text, bytes, a Blob or what has a JSON form`);
  return { type: "application/json", body: utf8.encode(text) };
}

export class FakeTools {
  #all;
  #approve;
  #underWay;
  made = [];
  changed = [];

  // underWay is told of each call, for which the test waits also when the agent does not.
  constructor({ tools = {}, files = {}, skills = {}, approve = () => true }, underWay) {
    this.#all = tools;
    this.#approve = approve;
    this.#underWay = underWay;
    this.kept = new Map(Object.entries(files).map(([path, data]) => [path, contentOf(data)]));
    this.tools = this.#tools();
    this.files = this.#files();
    this.skills = this.#skills(skills);
  }

  // #make makes a call, which was approved when its change was.
  #make(name, args, approved) {
    const done = this.#do(name, args, approved);
    this.#underWay(done.then(() => {}, () => {}));
    return done;
  }

  async #do(name, given, approved) {
    const args = checked(pathOf(name), given);
    const tool = Object.hasOwn(this.#all, name) ? name : Object.keys(this.#all).find((n) => identifier(n) === identifier(name));
    if (tool === undefined) throw new ToolError(name, "denied", `tool ${name} was not granted: give it to FakeHost({ tools })`);
    try {
      if (!approved) await this.#ask({ calls: [{ tool, args }] });
      this.made.push({ tool, args });
      const value = await this.#all[tool](args);
      return value === undefined ? null : JSON.parse(JSON.stringify(value));
    } catch (e) {
      throw errorOf(tool, e);
    }
  }

  async #ask(question) {
    if (!(await this.#approve(question))) throw new SkepError("denied", "the question was answered with no");
  }

  // approved asks whether calls may be made that are no tools of the test.
  async approved(question) {
    return this.#approve(question);
  }

  #tools() {
    const found = ({ server, limit = Infinity, schemas } = {}, wanted = () => true) => {
      const all = Object.entries(this.#all)
        .map(([name, fn]) => ({ name, path: pathOf(name), effect: fn.effect ?? "unclassified", ...(fn.description && { description: fn.description }), ...(schemas && { schema: fn.schema ?? { type: "object" } }) }))
        .filter((t) => (server === undefined || t.name.startsWith(`${server}.`)) && wanted(t));
      return Object.defineProperty(all.slice(0, limit), "more", { value: Math.max(0, all.length - limit) });
    };
    return {
      call: async (name, args) => {
        if (typeof name !== "string" || name.indexOf(".") < 1) throw new TypeError('tools.call: the first argument is the name of a tool, such as "files.read"');
        return this.#make(name, args);
      },
      list: async (options) => found(options),
      search: async (words, options) => found({ limit: 10, ...options }, (t) => words.toLowerCase().split(/\s+/).some((w) => `${t.name} ${t.description}`.toLowerCase().includes(w))),
      describe: async (names) => {
        const wanted = [names].flat();
        return found({}, (t) => wanted.some((n) => n === t.name || (n.endsWith(".*") && t.name.startsWith(n.slice(0, -1))))).map((t) => `${t.path}(args: object): Promise<any>;\n`).join("");
      },
      change: (title, calls) => this.#change(title, calls),
    };
  }

  async #change(title, calls) {
    if (typeof title !== "string" || title === "") throw new TypeError("tools.change: the first argument is a title that whoever approves it reads");
    if (!Array.isArray(calls) || calls.length < 1 || calls.length > 256) throw new TypeError("tools.change: the second argument is an array of 1 to 256 calls");
    const all = calls.map((c, i) => ({ tool: c.tool, args: checked(`tools.change: call ${i + 1}`, c.args) }));
    try {
      await this.#ask({ title, calls: all });
    } catch (e) {
      throw errorOf(calls.length === 1 ? calls[0].tool : "", e);
    }
    this.changed.push({ title, calls: all });
    const results = [];
    for (const { tool, args } of calls) {
      try {
        results.push(await this.#make(tool, args, true));
      } catch (e) {
        throw await this.#takenBack(e, calls, results);
      }
    }
    return results;
  }

  async #takenBack(e, calls, results) {
    const data = { failed: results.length + 1, undone: [], kept: [] };
    let text = "";
    for (let i = results.length - 1; i >= 0; i--) {
      const { tool, args, undo } = calls[i];
      let why = "it has no undo";
      try {
        if (undo !== undefined) {
          await (typeof undo === "function" ? undo(results[i], args) : this.#make(undo.tool, undo.args));
          data.undone.push({ call: i + 1, tool });
          text += `; call ${i + 1}, ${tool}, was undone`;
          continue;
        }
      } catch (x) {
        why = `its undo failed: ${x.message}`;
      }
      data.kept.push({ call: i + 1, tool, why });
      text += `; call ${i + 1}, ${tool}, was not undone: ${why}`;
    }
    const { tool } = calls[results.length];
    const message = `call ${data.failed} of ${calls.length}, ${tool}, failed: ${e.message}${text}`;
    return Object.assign(new ToolError(tool, e.kind ?? "failed", message, { limit: e.limit, hint: e.hint, data }), { cause: e });
  }

  #files() {
    const path = (what, file) => {
      const p = typeof file === "object" && file !== null ? (file.artifact ?? file.path) : file;
      if (typeof p !== "string" || p === "") throw new TypeError(`${what}: the first argument is the path of a file, or a handle such as { artifact: "artifacts/x/1.png" }`);
      return p;
    };
    const info = (p, { type, body }) => ({ path: p, type, size: body.length });
    return {
      read: async (file, { offset = 0, length = Infinity, as = "text" } = {}) => {
        const p = path("files.read", file);
        if (!this.kept.has(p)) throw new SkepError("not_found", `there is no file ${p}`);
        const bytes = this.kept.get(p).body.slice(offset, offset + length);
        if (as === "bytes") return bytes;
        const text = new TextDecoder().decode(bytes);
        return as === "json" ? JSON.parse(text) : text;
      },
      write: async (file, data, { type } = {}) => {
        const content = data instanceof Blob ? { type: data.type || "application/octet-stream", body: new Uint8Array(await data.arrayBuffer()) } : contentOf(data);
        const kept = { type: type ?? content.type, body: content.body };
        const p = path("files.write", file);
        this.kept.set(p, kept);
        return info(p, kept);
      },
      instructions: async (where = "") => {
        const folders = where.split("/").filter((part) => part !== "").map((_, i, all) => `${all.slice(0, i + 1).join("/")}/`);
        const found = ["", ...folders].map((folder) => `${folder}AGENTS.md`).filter((p) => this.kept.has(p));
        const text = (p) => `<instructions from="session" file="${p}">\n${new TextDecoder().decode(this.kept.get(p).body).trim()}\n</instructions>\n`;
        return { text: found.map(text).join(""), files: found.map((p) => ({ path: p, from: "session", size: this.kept.get(p).body.length })) };
      },
      list: async (prefix = "") => [...this.kept].filter(([p]) => p.startsWith(prefix)).sort(([a], [b]) => (a < b ? -1 : 1)).map(([p, f]) => info(p, f)),
    };
  }

  #skills(all) {
    const filesOf = (name) => (typeof all[name] === "string" ? { "SKILL.md": all[name] } : all[name]);
    return {
      list: async () => Object.keys(all).sort().map((name) => ({ name, description: /^description: *(.*)$/m.exec(filesOf(name)["SKILL.md"] ?? "")?.[1] ?? "" })),
      load: async (name, path = "SKILL.md") => {
        if (!Object.hasOwn(all, name)) throw new SkepError("not_found", `there is no skill ${name}: give it to FakeHost({ skills })`);
        const text = filesOf(name)[path];
        if (text === undefined) throw new SkepError("not_found", `skill ${name} has no file ${path}`);
        return { text, files: Object.keys(filesOf(name)).sort() };
      },
    };
  }
}
