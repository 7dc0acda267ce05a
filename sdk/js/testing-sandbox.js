// The sandbox of an agent under test: files in memory, programs that are functions of the test, and a CLI that is one.

import { SkepError, ToolError } from "./index.js";

const utf8 = new TextEncoder();
const bytesOf = (data) => (typeof data === "string" ? utf8.encode(data) : data instanceof Uint8Array ? data : utf8.encode(JSON.stringify(data)));
const base64 = (bytes) => Buffer.from(bytes).toString("base64");

export class FakeSandbox {
  #given;
  #tools;
  #now;
  #turns = new Map();
  #asked = new Map(); // what the CLI waits for, by id
  #count = 0;
  #base = new Map();
  files = new Map();
  ran = [];
  prompts = [];

  // tools is the FakeTools of the test, which has the session's files and whoever approves; now returns the time of its clock.
  constructor(given, tools, now) {
    this.#given = given;
    this.#tools = tools;
    this.#now = now;
    for (const [path, data] of Object.entries(given?.files ?? {})) this.files.set(path, bytesOf(data));
  }

  // permit decides about what the CLI asks to be allowed, as a call of a tool.
  async permit(tool, args, id) {
    if (!(await this.#tools.approved({ calls: [{ tool, args }] }))) throw new ToolError(tool, "denied", `the call of ${tool} was not approved: a person has denied it`);
  }

  // ask makes a call of package abi's.
  async ask(name, body) {
    if (this.#given === undefined) throw new SkepError("denied", "the agent has no sandbox: give FakeHost({ sandbox: {} })");
    const q = body === "" ? {} : JSON.parse(body);
    const call = this.#calls[name];
    if (call === undefined) throw new SkepError("denied", `a FakeHost does not know ${name}`);
    return call.call(this, q);
  }

  #file(path) {
    const body = this.files.get(path);
    if (body === undefined) throw new SkepError("not_found", `there is no file ${path}`);
    return { path, type: "file", size: body.length, mode: 0o644, modified: this.#now() };
  }

  #calls = {
    "sandbox.open": () => ({ id: "sandbox", environment: "test@1", provider: "test", keep: this.#given.keep ?? "cattle", generation: 1, cli: this.#given.cli && "test", workspace: "/workspace" }),
    "sandbox.exec": async (q) => {
      this.ran.push(q.command);
      if (this.#given.exec === undefined) throw new SkepError("denied", "no program can be run: give FakeHost({ sandbox: { exec } })");
      const out = await this.#given.exec(q.command.length === 1 ? q.command[0] : q.command, { ...q, files: this.files });
      return { id: `exec-${++this.#count}`, code: 0, stdout: "", stderr: "", ...(typeof out === "string" ? { stdout: out } : out) };
    },
    "sandbox.processes": () => ({ processes: [] }),
    "sandbox.signal": () => undefined,
    "sandbox.preview": ({ port, lasts = 3_600_000 }) => {
      if (!(Number.isInteger(port) && port >= 1 && port <= 65535)) throw new SkepError("invalid", `${port} is no port: a port is a number from 1 to 65535`);
      if (!(lasts >= 1000 && lasts <= 86_400_000)) throw new SkepError("invalid", `a link lasts from a second to a day, not ${lasts} milliseconds`);
      return { url: `http://localhost/preview/${port}/`, expires: this.#now() + lasts };
    },
    "sandbox.read": (q) => {
      this.#file(q.path);
      const body = this.files.get(q.path).slice(q.offset ?? 0);
      const part = body.slice(0, q.length);
      return { body: base64(part), more: part.length < body.length };
    },
    "sandbox.write": (q) => {
      this.files.set(q.path, new Uint8Array(Buffer.from(q.body, "base64")));
      return this.#file(q.path);
    },
    "sandbox.list": (q) => ({ files: [...this.files.keys()].filter((p) => q.path === undefined || p.startsWith(`${q.path}/`)).sort().map((p) => this.#file(p)) }),
    "sandbox.delete": (q) => {
      for (const p of this.files.keys()) if (p === q.path || (q.recursive && p.startsWith(`${q.path}/`))) this.files.delete(p);
    },
    "sandbox.attach": (q) => {
      const paths = q.files.map((path) => {
        const f = this.#tools.kept.get(path);
        if (f === undefined) throw new SkepError("not_found", `the session has no file ${path}`);
        this.files.set(`.attachments/${path}`, f.body);
        return `.attachments/${path}`;
      });
      return { paths, images: paths.filter((p) => /\.(png|jpe?g|gif|webp)$/.test(p)) };
    },
    "sandbox.repo": () => {
      this.#base = new Map(this.files);
      return { commit: "base", files: this.files.size };
    },
    "sandbox.diff": (q) => {
      const changed = [];
      for (const [path, body] of this.files) {
        const was = this.#base.get(path);
        if (!path.startsWith(".attachments/") && (was === undefined || !Buffer.from(was).equals(Buffer.from(body)))) changed.push({ path, op: was === undefined ? "add" : "change", added: -1, removed: -1 });
      }
      for (const path of this.#base.keys()) if (!this.files.has(path)) changed.push({ path, op: "delete", added: -1, removed: -1 });
      const out = { base: "base", bytes: 0, files: changed.length, changed };
      if (changed.length === 0) return out;
      const file = `artifacts/test/${++this.#count}.${q.commit === undefined ? "patch" : "bundle"}`;
      this.#tools.kept.set(file, { type: "text/x-diff; charset=utf-8", body: utf8.encode(changed.map((c) => `${c.op} ${c.path}\n`).join("")) });
      return { ...out, ...(q.commit === undefined ? { patch: file } : { bundle: file, commit: "commit" }) };
    },
    "sandbox.checkpoint": (q) => {
      const file = q.file ?? `artifacts/test/${++this.#count}.tar`;
      const saved = [...this.files].filter(([path]) => q.paths === undefined || q.paths.some((p) => path === p || path.startsWith(`${p}/`)));
      this.#tools.kept.set(file, { type: "application/x-tar", body: utf8.encode(JSON.stringify(saved.map(([path, body]) => [path, base64(body)]))) });
      return { file, digest: "test", files: saved.length, bytes: saved.reduce((n, [, body]) => n + body.length, 0) };
    },
    "sandbox.restore": (q) => {
      const kept = this.#tools.kept.get(q.file);
      if (kept === undefined) throw new SkepError("not_found", `there is no checkpoint ${q.file}`);
      const saved = JSON.parse(new TextDecoder().decode(kept.body));
      for (const [path, body] of saved) this.files.set(path, new Uint8Array(Buffer.from(body, "base64")));
      return { file: q.file, digest: "test", files: saved.length, bytes: 0 };
    },
    "sandbox.prompt": (q) => {
      if (this.#given.cli === undefined) throw new SkepError("denied", "there is no CLI that could be prompted: give FakeHost({ sandbox: { cli } })");
      const turn = `turn-${++this.#count}`;
      this.prompts.push(q);
      this.#begin(turn, q);
      return { turn, generation: 1 };
    },
    "sandbox.next": async (q) => {
      const turn = this.#turns.get(q.turn);
      while (turn.events.length <= (q.after ?? 0)) await new Promise((resolve) => turn.waiting.push(resolve));
      return { events: turn.events.slice(q.after ?? 0), after: turn.events.length };
    },
    "sandbox.answer": (q) => {
      const waits = this.#asked.get(q.id);
      this.#asked.delete(q.id);
      waits?.(q);
      return { taken: waits !== undefined };
    },
    "sandbox.ask": async (q) => {
      if (this.#given.answer === undefined) return { refused: "nobody can be asked: give FakeHost({ sandbox: { answer } })" };
      return { answer: await this.#given.answer(q) };
    },
    "sandbox.withdraw": () => undefined,
    "sandbox.interrupt": (q) => {
      this.#turns.get(q.turn)?.end({ status: "interrupted", text: "" });
    },
  };

  // #begin has the CLI of the test do a turn.
  #begin(name, prompt) {
    const turn = { events: [], waiting: [], over: false };
    const tell = (type, data, more) => {
      turn.events.push({ type, data, ...more });
      for (const wake of turn.waiting.splice(0)) wake();
    };
    turn.end = (data) => {
      if (turn.over) return;
      turn.over = true;
      tell("turn.ended", data, { session: "session", usage: { input: 1, output: 1 } });
    };
    this.#turns.set(name, turn);
    const asks = (type, data) => {
      const id = `ask-${++this.#count}`;
      return new Promise((resolve) => {
        this.#asked.set(id, resolve);
        tell(type, { id, ...data });
      });
    };
    const cli = {
      files: this.files,
      permit: async (action, args = {}) => {
        const said = await asks("permission.asked", { action, args });
        return said.allow ? undefined : (said.message ?? "denied");
      },
      ask: async (text, options) => (await asks("question.asked", { text, options })).message,
      write: async (path, data) => {
        const refused = await cli.permit("edit", { path });
        if (refused === undefined) this.files.set(path, bytesOf(data));
        return refused;
      },
    };
    tell("session.started", { id: "session", cli: "test" });
    Promise.resolve()
      .then(() => this.#given.cli(prompt.text, cli, prompt))
      .then((text) => turn.end({ status: "completed", text: text ?? "" }), (e) => turn.end({ status: "failed", text: "", fault: { kind: e?.kind ?? "failed", message: `${e?.message ?? e}` } }));
  }
}
