import { SkepError } from "./error.js";

const utf8 = new TextEncoder();
const kinds = { text: "text", reasoning: "reasoning", refusal: "refusal", "tool-call": "call" };

/** ChatFold makes what happens in a conversation of the events of its log. It takes each event once, and text once. */
export class ChatFold {
  #seen = 0;
  #answers = new Map(); // by id: { attempt, told }, told being the bytes of each part

  /** add returns what an event tells: mostly one part or none. */
  add(ev) {
    if (ev.seq <= this.#seen) return [];
    this.#seen = ev.seq;
    const at = { seq: ev.seq, ...(ev.run !== undefined && { run: ev.run }) };
    const data = ev.data ?? {};
    switch (ev.kind) {
      case "message.started":
      case "message.delta":
      case "message.done":
        return this.#answer(at, ev.kind, data);
      case "message":
        return [{ type: "message", ...at, role: data.role, content: data.content }];
      case "tool.called":
        return [{ type: "tool", ...at, tool: data }];
      case "tool.returned":
        return [{ type: "returned", ...at, tool: data }];
      case "approval.requested":
        return [{ type: "approval", ...at, approval: data }];
      case "approval.answered":
        return [{ type: "answered", ...at, answered: data }];
      case "emit":
        return [{ type: "event", ...at, name: ev.name, data: ev.data }];
      case "run.completed":
        return [{ type: "done", ...at, status: "completed", output: valueOf(data.output) }];
      case "run.failed":
      case "run.cancelled":
        return [{ type: "done", ...at, status: ev.kind.slice(4), error: new SkepError(data.kind ?? "failed", data.message ?? "the run failed", data) }];
    }
    return [];
  }

  #answer(at, kind, d) {
    const out = [];
    const part = { ...at, id: d.id };
    let a = this.#answers.get(d.id);
    if (a && d.attempt < a.attempt) return out; // of an attempt that is void
    if (!a || d.attempt > a.attempt) {
      out.push({ type: a ? "restart" : "start", ...part, ...(d.model && { model: d.model }) });
      this.#answers.set(d.id, (a = { attempt: d.attempt, told: new Map() }));
    }
    if (kind === "message.delta" && Object.hasOwn(kinds, d.type)) {
      const bytes = utf8.encode(d.text ?? "");
      const told = a.told.get(d.index) ?? 0, end = d.offset + bytes.length;
      let { text = "", name, call } = d;
      if (d.offset < told) {
        if (end <= told) return out;
        text = new TextDecoder().decode(bytes.subarray(told - d.offset));
        name = call = undefined;
      }
      a.told.set(d.index, end);
      out.push({ type: kinds[d.type], ...part, index: d.index, text, ...(name && { name }), ...(call && { call }) });
    } else if (kind === "message.done") {
      const { model, stop, usage, error } = d;
      out.push({ type: "answer", ...part, ...(model && { model }), ...(stop && { stop }), ...(usage && { usage }), ...(error && { error }) });
    }
    return out;
  }
}

// valueOf is a payload as a value.
function valueOf(p = {}) {
  if ("json" in p) return p.json;
  if ("text" in p) return p.text;
  return p.base64 === undefined ? undefined : Uint8Array.from(atob(p.base64), (c) => c.charCodeAt(0));
}

/** Transcript makes the messages of a conversation of the events of its log. */
export class Transcript {
  messages = [];
  /** seen is the number of the newest event. */
  seen = 0;
  #fold = new ChatFold();

  /** add takes an event, and returns whether it has changed the messages. */
  add(ev) {
    const parts = this.#fold.add(ev);
    this.seen = Math.max(this.seen, ev.seq);
    for (const p of parts) this.#put(p);
    return parts.length > 0;
  }

  #put(p) {
    if (p.type === "message") {
      this.messages.push({ role: p.role === "user" ? "user" : "assistant", ...(p.run && { run: p.run }), parts: partsOf(p.content), done: true });
      return;
    }
    const m = this.#message(p);
    if (!m) return;
    switch (p.type) {
      case "start":
        if (p.model) m.model = p.model;
        break;
      case "restart":
        m.parts = m.parts.filter((x) => x.of !== p.id);
        break;
      case "text":
      case "reasoning":
      case "refusal":
      case "call": {
        let x = m.parts.find((o) => o.of === p.id && o.index === p.index);
        if (!x) m.parts.push((x = { type: p.type, of: p.id, index: p.index, text: "" }));
        x.text += p.text;
        if (p.name) x.name = p.name;
        if (p.call) x.call = p.call;
        break;
      }
      case "answer":
        for (const k of ["model", "stop", "usage"]) if (p[k] !== undefined) m[k] = p[k];
        if (p.error) m.parts.push({ type: "error", of: p.id, text: p.error });
        break;
      case "tool":
        m.parts.push({ type: "tool", tool: p.tool });
        break;
      case "returned": {
        const x = m.parts.find((o) => o.type === "tool" && o.tool.call === p.tool.call);
        if (x) x.returned = p.tool;
        break;
      }
      case "approval":
        m.parts.push({ type: "approval", approval: p.approval });
        break;
      case "answered": {
        const x = m.parts.find((o) => o.type === "approval" && o.approval.id === p.answered.id);
        if (x) x.answered = p.answered;
        break;
      }
      case "done":
        this.#done(m, p);
        break;
    }
  }

  // #message is the answer of a run, which is made when it begins to say something.
  #message(p) {
    const found = this.messages.findLast((m) => m.role === "assistant" && m.run === p.run && !m.done);
    if (found || p.type === "event" || p.run === undefined) return p.type === "event" ? undefined : found;
    if (p.type === "answered" || p.type === "returned") return undefined; // what it belongs to was not seen
    if (p.type === "done" && !p.error && typeof p.output !== "string") return undefined; // it had nothing to say
    const m = { role: "assistant", run: p.run, parts: [], done: false };
    this.messages.push(m);
    return m;
  }

  // What a run returns is its answer, unless that was told before.
  #done(m, p) {
    m.done = true;
    if (p.error) m.error = p.error;
    const texts = m.parts.filter((x) => x.type === "text"), last = texts.at(-1);
    const said = texts.filter((x) => x.of === last?.of).map((x) => x.text).join("");
    const out = p.output;
    if (typeof out === "string" ? out.trim() !== said.trim() : out !== undefined && out !== null && texts.length === 0) {
      m.parts.push({ type: "text", text: typeof out === "string" ? out : JSON.stringify(out) });
    }
  }
}

const partsOf = (content) => (Array.isArray(content) ? content : [{ type: "text", text: typeof content === "string" ? content : JSON.stringify(content) }]);

/** Chat is a conversation with an agent. */
export class Chat {
  #client;
  #opening;
  #key;
  #title;
  #run; // of the newest message that was sent here

  constructor(client, agent, { session, key, title } = {}) {
    this.#client = client;
    this.agent = agent;
    this.session = session;
    this.#key = key;
    this.#title = title;
  }

  /** open makes the session, if there is none yet, and returns its id. The first message does it, too. */
  async open() {
    if (this.session !== undefined) return this.session;
    this.#opening ??= this.#client.sessions.create({ agent: this.agent, key: this.#key, title: this.#title });
    try {
      return (this.session = (await this.#opening).id);
    } finally {
      this.#opening = undefined;
    }
  }

  /** send sends a message at once and returns what comes of it: an async iterable of parts, which ends when the run does. */
  send(content, { idempotencyKey, signal, patience } = {}) {
    const run = this.open().then((id) => this.#client.sessions.send(id, content, { idempotencyKey }));
    this.#run = run;
    run.catch(() => {}); // whoever iterates is told
    return new Turn(this.#client, run, { signal, patience });
  }

  /** cancel ends the answer to the newest message. */
  async cancel() {
    if (this.#run) await this.#client.runs.cancel((await this.#run).id);
  }

  /** answer allows or refuses what an approval asks. */
  answer(approval, allow, more = {}) {
    return this.#client.approvals.answer([typeof approval === "string" ? approval : approval.id], { ...more, allow });
  }

  /** messages returns what was said so far. */
  async messages({ signal } = {}) {
    const t = new Transcript();
    if (this.session === undefined) return t.messages;
    for await (const ev of this.#client.events({ session: this.session }, { follow: false, signal })) t.add(ev);
    return t.messages;
  }

  /** watch yields the messages, at first and whenever they change, whoever sends them. It is the same array each time. */
  async *watch({ signal, patience } = {}) {
    const t = new Transcript();
    const session = await this.open();
    for await (const ev of this.#client.events({ session }, { follow: false, signal, patience })) t.add(ev);
    yield t.messages;
    for await (const ev of this.#client.events({ session }, { after: t.seen, signal, patience })) {
      if (t.add(ev)) yield t.messages;
    }
  }
}

/** Turn is what comes of a message. It can be iterated over once. */
class Turn {
  #client;
  #options;

  constructor(client, run, options) {
    this.#client = client;
    this.run = run;
    this.#options = options;
  }

  async *[Symbol.asyncIterator]() {
    const fold = new ChatFold();
    const { id } = await this.run;
    for await (const ev of this.#client.events({ run: id }, this.#options)) yield* fold.add(ev);
  }

  /** text waits for the end and returns the answer's text. It throws what the run failed with. */
  async text() {
    const t = new Transcript();
    const { id } = await this.run;
    for await (const ev of this.#client.events({ run: id }, this.#options)) t.add(ev);
    const m = t.messages.findLast((x) => x.role === "assistant");
    if (m?.error) throw m.error;
    const texts = m?.parts.filter((x) => x.type === "text") ?? [];
    return texts.filter((x) => x.of === texts.at(-1).of).map((x) => x.text).join("");
  }
}
