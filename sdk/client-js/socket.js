import { SkepError, backoff, unavailable } from "./error.js";

const OPEN = 1;
const lost = () => new SkepError("unavailable", "the connection was lost before the answer came", {
  hint: "it may have taken effect: look before you do it again",
});

/** connect opens a connection with an instance of an agent, and opens it anew whenever it is lost. */
export function connect(options) {
  return new Connection(options);
}

class Connection {
  #o;
  #ws = null;
  #listeners = new Map();
  #attempt = 0;
  #retry; // timer
  #beat; // timer
  #heard = 0;
  #ended = null; // why it is over
  #helloed = false; // the server has answered the hello on this connection

  #life = 0;
  #events;
  #confirmed; // the state as the server has it
  #version = 0;
  #view; // with the changes that are not confirmed
  #changes = []; // {id, next, refusals, resolve, reject, sent}
  #calls = new Map(); // by id: {text, sent, done(frame), fail(error)}
  #ids = 0;
  #ready;

  constructor(options) {
    const { reconnect = {}, ...rest } = options;
    this.#o = { key: "default", events: true, timeout: 60_000, heartbeat: 25_000, ...rest, reconnect: { min: 250, max: 30_000, ...reconnect } };
    this.agent = this.#o.agent;
    this.key = this.#o.key;
    if (options.resume) {
      this.#life = options.resume.life;
      this.#events = options.resume.events;
    }
    this.#newReady();
    this.#open();
  }

  /** What clients share, with this client's own changes in it already. undefined when it was never set. It is not to be changed. */
  get state() { return this.#view; }
  /** The version of the state as the server has it; 0 when it was never set. */
  get version() { return this.#version; }
  /** Where it has got: options.resume of a later connection goes on from there. */
  get position() { return { life: this.#life, events: this.#events ?? 0 }; }
  get connected() { return this.#helloed && this.#ws?.readyState === OPEN; }

  /** ready resolves once the connection is open and the state known, and rejects when there never will be one. */
  ready() { return this.#ready.promise; }

  on(type, fn) {
    let all = this.#listeners.get(type);
    if (!all) this.#listeners.set(type, (all = new Set()));
    all.add(fn);
    return () => all.delete(fn);
  }

  /**
   * setState sets the whole state, or what a function makes of it. It is seen here at once, and taken back when the server refuses it:
   * then the promise rejects. A function is applied again when somebody else was faster.
   */
  setState(next) {
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      this.#changes.push({ id: `s${++this.#ids}`, next, refusals: 0, resolve, reject, sent: false });
      try {
        this.#show();
      } catch (e) { // of the function
        this.#changes.pop();
        reject(e);
        return;
      }
      this.#sendChange();
    });
  }

  /** call calls a method and resolves to what it returns. One that is under way when the connection is lost rejects. */
  call(method, ...args) {
    return new Promise((resolve, reject) => this.#call(method, args, (f) => f.done !== false && resolve(f.result), reject));
  }

  /** stream calls a method and iterates over what it yields. Leaving the loop early forgets the rest. */
  async *stream(method, ...args) {
    const items = [];
    let wake = () => {}, over = false, error;
    const id = this.#call(method, args, (f) => {
      if (f.done === false) items.push(f.result);
      else over = true;
      wake();
    }, (e) => {
      error = e;
      wake();
    }, 0);
    try {
      for (;;) {
        while (items.length > 0) yield items.shift();
        if (error) throw error;
        if (over) return;
        await new Promise((resolve) => { wake = resolve; });
      }
    } finally {
      this.#calls.delete(id);
    }
  }

  /** send sends text, bytes or what has a JSON form to the agent's onSocketMessage. */
  send(data) {
    if (!this.connected) throw unavailable("there is no connection now: await ready()");
    const raw = typeof data === "string" || data instanceof ArrayBuffer || ArrayBuffer.isView(data);
    this.#ws.send(raw ? data : JSON.stringify(data));
  }

  close(code = 1000, reason = "") {
    this.#end(new SkepError("cancelled", "the connection was closed here"));
    this.#ws?.close(code, reason);
  }

  #emit(type, ...args) {
    for (const fn of [...(this.#listeners.get(type) ?? [])]) {
      try {
        fn(...args);
      } catch (e) { // of the listener: it is not to end the connection
        console.error(e);
      }
    }
  }

  #newReady() {
    this.#ready = {};
    this.#ready.promise = new Promise((resolve, reject) => Object.assign(this.#ready, { resolve, reject }));
    this.#ready.promise.catch(() => {}); // who waits is told
  }

  async #open() {
    const { url, agent, key, token, app, query } = this.#o;
    let ws;
    try {
      const secret = typeof token === "function" ? await token() : token;
      if (this.#ended) return;
      const q = new URLSearchParams({ hello: "true" });
      if (app) q.set("app", app);
      for (const [name, value] of Object.entries(query ?? {})) if (!q.has(name)) q.set(name, value);
      const target = `${String(url).replace(/\/+$/, "").replace(/^http/, "ws")}/v1/agents/${encodeURIComponent(agent)}/instances/${encodeURIComponent(key)}/ws?${q}`;
      const WebSocket = this.#o.WebSocket ?? globalThis.WebSocket;
      if (!WebSocket) {
        this.#end(new SkepError("invalid", "there is no WebSocket here", { hint: "pass one: connect({ WebSocket }), of the package ws for example" }));
        return;
      }
      ws = new WebSocket(target, secret ? ["skep", `skep.token.${secret}`] : ["skep"]);
    } catch (e) {
      this.#lose(1006, String(e?.message ?? e));
      return;
    }
    ws.binaryType = "arraybuffer";
    this.#ws = ws;
    let opened = false;
    ws.onopen = () => {
      opened = true;
      if (this.#ended) return ws.close();
      this.#heard = Date.now();
      this.#keepAlive(ws);
      this.#hello(ws);
    };
    ws.onmessage = (m) => {
      if (this.#ws !== ws) return;
      this.#heard = Date.now();
      this.#take(m.data);
    };
    // A close follows, but not in every implementation when it never was open.
    ws.onerror = () => this.#ws === ws && !opened && this.#lose(1006, "the connection cannot be opened");
    ws.onclose = (e) => this.#ws === ws && this.#lose(e.code, e.reason);
  }

  #hello(ws) {
    ws.send(JSON.stringify({
      type: "skep_hello", events: this.#o.events,
      resume: this.#life ? { life: this.#life, state: this.#version, events: this.#events } : undefined,
    }));
  }

  // A browser's page can send no ping, and sees a dead connection only by what does not come.
  #keepAlive(ws) {
    clearInterval(this.#beat);
    this.#beat = setInterval(() => {
      if (Date.now() - this.#heard > 2 * this.#o.heartbeat) {
        clearInterval(this.#beat);
        ws.close();
        if (this.#ws === ws) this.#lose(1006, "the server is silent");
      } else ws.send('{"type":"ping"}');
    }, this.#o.heartbeat);
    this.#beat.unref?.();
  }

  #lose(code, reason) {
    clearInterval(this.#beat);
    const was = this.#helloed;
    this.#ws = null;
    this.#helloed = false;
    if (was) this.#newReady();
    for (const [id, c] of this.#calls) {
      if (!c.sent) continue;
      this.#calls.delete(id);
      c.fail(lost());
    }
    const under = this.#changes[0];
    if (under?.sent) {
      this.#changes.shift();
      under.reject(lost());
      this.#show();
    }
    const final = code === 1008 || code >= 4000 && code <= 4999 || this.#o.reconnect.attempts !== undefined && this.#attempt >= this.#o.reconnect.attempts;
    this.#emit("close", { code, reason, final: final || this.#ended !== null });
    if (this.#ended) return;
    if (final) {
      this.#end(new SkepError(code === 4404 ? "not_found" : "denied", reason || `the connection was closed with code ${code}`));
      return;
    }
    this.#retry = setTimeout(() => this.#open(), backoff(this.#attempt++, this.#o.reconnect.min, this.#o.reconnect.max));
  }

  #end(error) {
    if (this.#ended) return;
    this.#ended = error;
    clearTimeout(this.#retry);
    clearInterval(this.#beat);
    this.#ready.reject(error);
    for (const c of this.#calls.values()) c.fail(error);
    for (const c of this.#changes) c.reject(error);
    this.#calls.clear();
    this.#changes = [];
    this.#show();
  }

  #take(data) {
    let f;
    if (typeof data === "string") {
      try {
        f = JSON.parse(data);
      } catch { /* it is the code's own */ }
    }
    switch (f?.type) {
      case "cf_agent_identity":
      case "pong":
        return;
      case "skep_ready":
        return this.#begin(f);
      case "cf_agent_state":
        this.#confirm(f.state, f.version);
        return this.#opened();
      case "skep_state_patch":
        if (f.base === this.#version) this.#confirm(merge(this.#confirmed, f.patch), f.version);
        else if (f.version > this.#version) this.#hello(this.#ws); // answered with the whole state
        return;
      case "skep_state_set":
      case "skep_state_refused":
        return this.#answered(f);
      case "skep_event":
        if (f.event.seq <= this.#events) return;
        this.#events = f.event.seq;
        return this.#emit("event", f.event);
      case "skep_error":
        return this.#emit("error", new SkepError(f.kind, f.error));
      case "rpc":
        return this.#result(f);
    }
    this.#emit("message", data);
  }

  #begin(f) {
    if (this.#life !== f.life) { // another instance than the one before, if there was one
      if (this.#life === 0) this.#events ??= f.events;
      else this.#events = 0;
      this.#life = f.life;
      this.#version = 0;
      this.#confirmed = undefined;
      this.#show();
    }
    this.#events ??= f.events;
    if (f.version === this.#version) this.#opened(); // else the state follows
  }

  #opened() {
    if (this.#helloed) return;
    this.#helloed = true;
    this.#attempt = 0;
    this.#ready.resolve();
    this.#emit("open");
    for (const c of this.#calls.values()) this.#transmit(c);
    this.#sendChange();
  }

  #confirm(state, version) {
    if (version < this.#version) return;
    this.#confirmed = state;
    this.#version = version;
    this.#show();
  }

  // show makes the state that is seen: the server's, with what waits to be confirmed.
  #show() {
    const before = this.#view;
    let view = this.#confirmed;
    for (const c of this.#changes) view = typeof c.next === "function" ? c.next(view) : c.next;
    this.#view = view;
    if (view !== before) this.#emit("state", view);
  }

  #sendChange() {
    const c = this.#changes[0];
    if (!c || c.sent || !this.connected) return;
    const byFunction = typeof c.next === "function";
    try {
      c.value = byFunction ? c.next(this.#confirmed) : c.next;
      c.sent = true;
      this.#ws.send(JSON.stringify({ type: "cf_agent_state", id: c.id, state: c.value === undefined ? null : c.value, version: byFunction ? this.#version : undefined }));
    } catch (e) {
      this.#changes.shift();
      c.reject(e);
      this.#show();
      this.#sendChange();
    }
  }

  #answered(f) {
    const c = this.#changes[0];
    if (f.id !== c?.id) return;
    if (f.type === "skep_state_refused" && f.kind === "conflict" && typeof c.next === "function" && c.refusals++ < 20) {
      c.sent = false;
      this.#confirm(f.state, f.version);
      return this.#sendChange();
    }
    this.#changes.shift();
    if (f.type === "skep_state_set") {
      if (f.version > this.#version) this.#confirm(c.value, f.version);
      else this.#show();
      c.resolve(f.version);
    } else {
      if (f.version >= this.#version && f.state !== undefined) this.#confirm(f.state, f.version);
      else this.#show();
      c.reject(new SkepError(f.kind, f.error));
    }
    this.#sendChange();
  }

  #call(method, args, done, fail, timeout = this.#o.timeout) {
    const id = `c${++this.#ids}`;
    if (this.#ended) {
      fail(this.#ended);
      return id;
    }
    const c = { text: JSON.stringify({ type: "rpc", id, method, args }), sent: false };
    const timer = timeout > 0 ? setTimeout(() => {
      this.#calls.delete(id);
      fail(new SkepError("unavailable", `no answer to ${method} within ${timeout} ms`, { hint: "it may have taken effect: look before you do it again" }));
    }, timeout) : undefined;
    c.done = (f) => {
      if (f.done !== false) clearTimeout(timer);
      done(f);
    };
    c.fail = (e) => {
      clearTimeout(timer);
      fail(e);
    };
    this.#calls.set(id, c);
    if (this.connected) this.#transmit(c);
    return id;
  }

  #transmit(c) {
    if (c.sent) return;
    c.sent = true;
    this.#ws.send(c.text);
  }

  #result(f) {
    const c = this.#calls.get(f.id);
    if (!c) return;
    if (!f.success || f.done !== false) this.#calls.delete(f.id);
    if (f.success) c.done(f);
    else c.fail(new SkepError(f.kind ?? "failed", f.error, { hint: f.hint }));
  }
}

/** merge applies a JSON merge patch (RFC 7396) and changes neither of the two. */
export function merge(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const out = target !== null && typeof target === "object" && !Array.isArray(target) ? { ...target } : {};
  for (const [k, v] of Object.entries(patch)) {
    if (v === null) delete out[k];
    else Object.defineProperty(out, k, { value: merge(Object.hasOwn(out, k) ? out[k] : undefined, v), enumerable: true, writable: true, configurable: true });
  }
  return out;
}
