// What `model` is: the same in a cell, into which the prelude takes this file, and in a test. makeModel gets query(what, name, make, read), which makes
// the call of that name whose body make writes, and returns a promise of what read makes of the answer.

const names = { model: "model", system: "system", choice: "choice", temperature: "temperature", stop: "stop", user: "user", cache: "cache", show: "show", maxTokens: "max_tokens", topP: "top_p" };
const others = ["messages", "prompt", "tools", "reasoning", "format", "maxSteps"];
const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
const has = Object.prototype.hasOwnProperty;

// base64 writes bytes as ModelPart has them. A text is base64 already.
function base64(what, data) {
  if (typeof data === "string") return data;
  if (data instanceof ArrayBuffer) data = new Uint8Array(data);
  if (!ArrayBuffer.isView(data)) throw new TypeError(`${what}: data is bytes, or their base64`);
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (typeof bytes.toBase64 === "function") return bytes.toBase64();
  let text = "";
  for (const b of bytes) text += String.fromCharCode(b);
  return btoa(text);
}

// contentOf reads the content of a message, or of a tool's result: a text, or parts.
function contentOf(what, content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw new TypeError(`${what} is a text, or an array of parts such as { type: "text", text }`);
  return content.map((p, i) => {
    const at = `${what}[${i}]`;
    if (typeof p === "string") return { type: "text", text: p };
    if (!isObject(p) || typeof p.type !== "string") throw new TypeError(`${at} is a part such as { type: "text", text }`);
    const out = { ...p };
    if (p.data !== undefined) out.data = base64(at, p.data);
    if (p.type === "tool-result" && p.result !== undefined) out.result = contentOf(`${at}.result`, p.result);
    return out;
  });
}

function messagesOf(what, ask) {
  if (ask.prompt !== undefined) {
    if (ask.messages !== undefined) throw new TypeError(`${what}: prompt stands for messages; give one of them`);
    return [{ role: "user", content: contentOf(`${what}: prompt`, ask.prompt) }];
  }
  if (!Array.isArray(ask.messages)) throw new TypeError(`${what}: messages is an array such as [{ role: "user", content: "Hello" }]`);
  return ask.messages.map((m, i) => {
    if (!isObject(m)) throw new TypeError(`${what}: messages[${i}] is an object such as { role: "user", content: "Hello" }`);
    return { role: m.role, content: contentOf(`${what}: messages[${i}].content`, m.content) };
  });
}

// toolsOf reads tools: an array of them, or an object by their names.
function toolsOf(what, tools) {
  const all = Array.isArray(tools) ? tools : Object.entries(tools).map(([name, t]) => ({ name, ...t }));
  return all.map((t, i) => {
    if (!isObject(t) || typeof t.name !== "string" || t.name === "") throw new TypeError(`${what}: tools[${i}] has no name`);
    if (t.run !== undefined && typeof t.run !== "function") throw new TypeError(`${what}: tools[${i}].run is a function of the arguments`);
    return { name: t.name, description: t.description, schema: t.schema ?? { type: "object" }, run: t.run };
  });
}

// askOf reads what a model is asked: the body of the call, the functions of its tools, and how often it may be asked.
function askOf(what, ask) {
  if (typeof ask === "string") ask = { prompt: ask };
  if (!isObject(ask)) throw new TypeError(`${what}: the argument is a text, or an object such as { model: "@main", messages: [...] }`);
  const body = {};
  for (const [key, v] of Object.entries(ask)) {
    if (has.call(names, key)) body[names[key]] = v;
    else if (!others.includes(key)) throw new TypeError(`${what}: there is no field ${JSON.stringify(key)}; there are ${[...Object.keys(names), ...others].sort().join(", ")}`);
  }
  body.messages = messagesOf(what, ask);
  if (ask.reasoning !== undefined) body.reasoning = typeof ask.reasoning === "string" ? { effort: ask.reasoning } : ask.reasoning;
  if (ask.format !== undefined) body.format = ask.format;
  const run = new Map();
  if (ask.tools !== undefined && ask.tools !== null) {
    body.tools = toolsOf(what, ask.tools).map(({ run: f, ...t }) => {
      if (f !== undefined) run.set(t.name, f);
      return t;
    });
  }
  const maxSteps = ask.maxSteps ?? 10;
  if (!(maxSteps >= 1)) throw new TypeError(`${what}: maxSteps is a number from 1 up`);
  return { body, run, maxSteps };
}

const textOf = (parts, type) => parts.map((p) => (p.type === type ? (p.text ?? "") : "")).join("");
const counts = ["input", "cacheRead", "cacheWrite", "output", "reasoning"];

// ModelAnswer is what a model said. text and calls are read off content, which is what goes back to the model.
export class ModelAnswer {
  constructor({ id, model, content, stop, usage = {} }) {
    this.id = id;
    this.model = model;
    this.content = content ?? [];
    this.stop = stop;
    this.usage = {
      input: usage.input ?? 0, cacheRead: usage.cache_read ?? 0, cacheWrite: usage.cache_write ?? 0, output: usage.output ?? 0, reasoning: usage.reasoning ?? 0,
    };
    this.messages = [{ role: "assistant", content: this.content }];
  }
  get text() { return textOf(this.content, "text"); }
  get reasoning() { return textOf(this.content, "reasoning"); }
  get refusal() { return textOf(this.content, "refusal"); }
  get calls() { return this.content.filter((p) => p.type === "tool-call").map(({ id, name, args }) => ({ id, name, args: args ?? {} })); }
  // json reads the text as JSON: what a format has asked for.
  get json() { return JSON.parse(this.text); }
}

// errorText is what a model is told of an error.
export function errorText(e) {
  try {
    if (typeof e !== "object" || e === null) return `${e}`;
    return `${e.message}${typeof e.hint === "string" && e.hint !== "" ? ` (${e.hint})` : ""}`;
  } catch {
    return "an error that cannot be shown";
  }
}

// resultText is what a model is told of a value.
export function resultText(value) {
  if (typeof value === "string") return value;
  return JSON.stringify(value === undefined ? null : value) ?? "null";
}

// runCall answers a call of a tool by its function. Errors are told to the model, but for that of a run which is being stopped.
async function runCall({ id, name, args }, run) {
  const part = { type: "tool-result", id, name };
  try {
    if (!isObject(args)) throw new TypeError("the arguments are no JSON object");
    part.result = resultText(await run(args));
  } catch (e) {
    if (e?.kind === "cancelled") throw e;
    part.result = errorText(e);
    part.failed = true;
  }
  return part;
}

// Steps is what has come of asking a model again after each answer whose calls of tools are run.
class Steps {
  constructor({ body, run, maxSteps }) {
    this.body = body;
    this.run = run;
    this.left = maxSteps;
    this.show = body.show;
    this.step = 1;
    this.added = [];
    this.used = {};
  }

  // take takes an answer. It returns a promise of the results of its calls, after which the body is to be asked again, or undefined: then it is the last answer.
  take(a) {
    this.added.push(...a.messages);
    for (const c of counts) this.used[c] = (this.used[c] ?? 0) + a.usage[c];
    const calls = a.calls;
    if (calls.length === 0 || --this.left < 1 || !calls.every((c) => this.run.has(c.name))) {
      a.messages = this.added;
      a.usage = this.used;
      return undefined;
    }
    return Promise.all(calls.map((c) => runCall(c, this.run.get(c.name)))).then((content) => {
      const results = { role: "user", content };
      this.added.push(results);
      this.body = { ...this.body, messages: [...this.body.messages, ...a.messages, results] };
      if (this.show !== undefined) this.body.show = `${this.show}.${++this.step}`;
      return content;
    });
  }
}

// Stream is an answer under way, with those before it whose calls are run.
class Stream {
  #query;
  #id; // a promise of its number, once it is asked for
  #steps;
  #parts = 0; // of the answers before
  #results; // a promise of what the calls of the last answer return, while they are run
  #pieces = [];
  #ended = false;
  #answer;
  #error;
  #reading;
  #whole;

  constructor(query, steps) {
    this.#query = query;
    this.#steps = steps;
  }

  #open() {
    return (this.#id ??= this.#query("model.stream", "model.open", () => JSON.stringify(this.#steps.body), (out) => out.id));
  }

  // #more reads what has come since. Only one reading is under way.
  #more() {
    return (this.#reading ??= this.#read().finally(() => { this.#reading = undefined; }));
  }

  async #read() {
    try {
      if (this.#results !== undefined) {
        this.#pieces.push(...(await this.#results));
        this.#results = undefined;
        return;
      }
      const id = await this.#open();
      const got = await this.#query("model.stream", "model.read", () => JSON.stringify({ id }));
      for (const p of got.pieces ?? []) this.#pieces.push({ ...p, index: p.index + this.#parts });
      if (this.#ended || got.answer === undefined || got.answer === null) return;
      this.#id = undefined;
      const a = new ModelAnswer(got.answer);
      this.#results = this.#steps.take(a);
      if (this.#results !== undefined) {
        this.#results.catch(() => {}); // whoever reads is told
        this.#parts += a.content.length;
        return;
      }
      this.#answer = a;
      this.#pieces.push({ type: "end", answer: a });
    } catch (e) {
      this.#error = e;
    }
    this.#ended = true;
  }

  // answer is a promise of the whole, also when nobody reads the pieces.
  get answer() {
    if (this.#whole === undefined) {
      this.#whole = (async () => {
        while (!this.#ended) await this.#more();
        if (this.#error !== undefined) throw this.#error;
        return this.#answer;
      })();
      this.#whole.catch(() => {}); // whoever reads the pieces is told, too
    }
    return this.#whole;
  }

  async close() {
    if (this.#ended) return;
    this.#ended = true;
    this.#error ??= new Error("the stream was closed");
    if (this.#id === undefined) return;
    const id = await this.#id;
    await this.#query("model.stream", "model.close", () => JSON.stringify({ id }));
  }

  async *[Symbol.asyncIterator]() {
    let whole = false;
    try {
      for (;;) {
        while (this.#pieces.length > 0) yield this.#pieces.shift();
        if (this.#ended) break;
        await this.#more();
      }
      whole = true;
      if (this.#error !== undefined) throw this.#error;
    } finally {
      if (!whole) await this.close();
    }
  }
}

export function makeModel(query) {
  const one = async (body) => new ModelAnswer(await query("model.generate", "model.generate", () => JSON.stringify(body)));

  // generate asks a model, and goes on for as long as it calls tools that have functions.
  async function generate(ask) {
    const steps = new Steps(askOf("model.generate", ask));
    for (;;) {
      const a = await one(steps.body);
      const results = steps.take(a);
      if (results === undefined) return a;
      await results;
    }
  }

  // stream is generate whose answers come in pieces.
  const stream = (ask) => new Stream(query, new Steps(askOf("model.stream", ask)));

  const list = () => query("model.list", "model.list", () => "", (out) => out.models ?? []);

  return Object.freeze({ generate, stream, list });
}
