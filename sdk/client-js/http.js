import { SkepError, backoff, cancelled, rest, unavailable } from "./error.js";
import { Chat } from "./chat.js";
import { Sandbox } from "./sandbox.js";
import { esc, query } from "./query.js";
import { connect } from "./socket.js";

/** Client calls a server over HTTP. It keeps no connection and nothing in memory. */
export class Client {
  #o;
  constructor(options) {
    this.#o = { ...options, url: String(options.url).replace(/\/+$/, "").replace(/^ws/, "http") };
    this.agents = {
      list: (page) => this.#json("GET", `/agents${query(page)}`),
      get: (name) => this.#json("GET", `/agents/${esc(name)}`),
      create: (agent) => this.#json("POST", "/agents", agent, once()),
      update: (name, patch) => this.#json("PATCH", `/agents/${esc(name)}`, patch),
      delete: (...names) => this.#json("POST", "/agents/delete", { names }),
    };
    this.runs = {
      list: (filter) => this.#json("GET", `/runs${query(filter)}`),
      get: (id) => this.#json("GET", `/runs/${esc(id)}`),
      cancel: (...ids) => this.#json("POST", "/runs/cancel", { ids }),
    };
    this.sessions = {
      list: (filter) => this.#json("GET", `/sessions${query(filter)}`),
      get: (id) => this.#json("GET", `/sessions/${esc(id)}`),
      create: (session) => this.#json("POST", "/sessions", session, once()),
      send: (id, content, { role, idempotencyKey } = {}) => this.#json("POST", `/sessions/${esc(id)}/messages`, { role, content }, once(idempotencyKey)),
    };
    this.approvals = {
      list: (filter) => this.#json("GET", `/approvals${query(filter)}`),
      get: (id) => this.#json("GET", `/approvals/${esc(id)}`),
      answer: (ids, answer) => this.#json("POST", "/approvals/answer", { ...answer, ids }),
    };
    this.environments = {
      list: (page) => this.#json("GET", `/environments${query(page)}`),
      get: (name) => this.#json("GET", `/environments/${esc(name)}`),
      revisions: (name, page) => this.#json("GET", `/environments/${esc(name)}/revisions${query(page)}`),
      put: ({ name, app, revision, created, ...environment }) => // of what get returned, too: eslint-disable-line no-unused-vars
        this.#json("PUT", `/environments/${esc(name)}`, environment),
      delete: (name) => this.#json("DELETE", `/environments/${esc(name)}`),
    };
    this.sandboxes = {
      providers: async () => (await this.#json("GET", "/sandboxes/providers")).items,
      list: (filter) => this.#json("GET", `/sandboxes${query(filter)}`),
      get: (id) => this.#json("GET", `/sandboxes/${esc(id)}`),
      open: (agent, { session, signal } = {}) => this.#json("POST", "/sandboxes", { agent, session }, {}, signal),
    };
  }

  /** call runs a function of an agent in a fresh cell. */
  call(agent, fn, input, options) {
    return this.#bytes(`/agents/${esc(agent)}/call/${esc(fn)}`, input, options);
  }

  /** instance returns one instance of an agent, which its first call makes. */
  instance(agent, key = "default") {
    const path = `/agents/${esc(agent)}/instances/${esc(key)}`;
    return {
      agent,
      key,
      call: (method, input, options) => this.#bytes(`${path}/call/${esc(method)}`, input, options),
      stream: (method, input, options) => this.#items(`${path}/call/${esc(method)}`, input, options),
      get: () => this.#json("GET", path),
      delete: () => this.#json("DELETE", path),
      events: (options) => this.#events(`${path}/events`, options),
      connect: (options) => connect({ ...this.#o, ...options, agent, key }),
    };
  }

  /** chat returns a conversation with an agent: a session that there is, or one that the first message makes. */
  chat(agent, options) {
    return new Chat(this, agent, options);
  }

  /** sandbox returns a sandbox by its id, or by what sandboxes.open returned. */
  sandbox(of) {
    return new Sandbox(typeof of === "string" ? of : of.id, { json: (...x) => this.#json(...x), send: (...x) => this.#send(...x) });
  }

  /** run starts a run and returns it at once. */
  run(agent, fn, input, options = {}) {
    const { session, key, idempotencyKey } = options;
    return this.#json("POST", "/runs", { agent, function: fn, input: input === undefined ? null : input, session, key }, once(idempotencyKey));
  }

  /** wait returns a run when it has ended, and throws what it failed with. */
  async wait(id, options) {
    for await (const _ of this.events({ run: id }, options)); // eslint-disable-line no-unused-vars
    const run = await this.runs.get(id);
    if (run.error) throw new SkepError(run.error.kind, run.error.message, run.error);
    return run;
  }

  /** events follows a log from the event after options.after: of a run up to its end, of others for ever. None is missed or comes twice. */
  events(log, options) {
    if (log.run) return this.#events(`/runs/${esc(log.run)}/events`, options, (ev) => ev.run === log.run && over.test(ev.kind), async () => over.test(`run.${(await this.runs.get(log.run)).status}`));
    if (log.session) return this.#events(`/sessions/${esc(log.session)}/events`, options);
    if (log.key !== undefined) return this.#events(`/agents/${esc(log.agent)}/instances/${esc(log.key)}/events`, options);
    return this.#events(`/agents/${esc(log.agent)}/logs`, options);
  }

  async *#events(path, options = {}, isLast = () => false, ended) {
    const { signal, follow = true, patience = 60_000 } = options;
    let after = options.after ?? 0, failures = 0, lost = Date.now();
    for (;;) {
      let opened = false, heard = false;
      try {
        const res = await this.#send("GET", `${path}?follow=${follow}`, { headers: { Accept: "text/event-stream", "Last-Event-ID": String(after) }, signal });
        opened = true;
        for await (const ev of messages(res.body)) {
          failures = 0;
          heard = true;
          if (ev.seq <= after) continue;
          after = ev.seq;
          yield ev;
          if (isLast(ev)) return;
        }
        if (!follow) return;
        // A run's log that ends before the run: the server stops. Without an event it may as well be that there are no more.
        if (ended && !heard && await ended()) return;
      } catch (e) {
        if (signal?.aborted) throw cancelled();
        if (e instanceof SkepError && e.kind !== "unavailable" || !opened && Date.now() - lost > patience) throw e;
      }
      if (opened) lost = Date.now();
      await rest(backoff(failures++, 200, 10_000), signal);
    }
  }

  async #send(method, path, { body, headers = {}, signal } = {}) {
    const { url, token, app } = this.#o;
    const h = { ...headers };
    const secret = typeof token === "function" ? await token() : token;
    if (secret) h.Authorization = `Bearer ${secret}`;
    if (app) h["Skep-App"] = app;
    let res;
    try {
      res = await (this.#o.fetch ?? globalThis.fetch)(`${url}/v1${path}`, { method, headers: h, body, signal });
    } catch (e) {
      if (signal?.aborted) throw cancelled();
      throw unavailable(`the server at ${url} cannot be reached`, e);
    }
    if (!res.ok) throw await errorOf(res);
    return res;
  }

  async #json(method, path, body, headers = {}, signal) {
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const res = await this.#send(method, path, { body: body === undefined ? undefined : JSON.stringify(body), headers, signal });
    return res.status === 204 ? undefined : res.json();
  }

  async *#items(path, input, { timeout, signal } = {}) {
    const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
    if (timeout) headers["Skep-Timeout"] = `${timeout}ms`;
    const res = await this.#send("POST", path, { body: input === undefined ? "null" : JSON.stringify(input), headers, signal });
    for await (const line of messages(res.body)) {
      if (line.error) throw new SkepError(line.error.kind, line.error.detail, line.error);
      if (!("item" in line)) return line.result;
      yield line.item;
    }
    if (signal?.aborted) throw cancelled();
    throw unavailable("the connection ended before the call did: it may have taken effect");
  }

  async #bytes(path, input, { timeout, signal } = {}) {
    const headers = { "Content-Type": "application/json" };
    let body = input;
    if (input instanceof Uint8Array || input instanceof ArrayBuffer) headers["Content-Type"] = "application/octet-stream";
    else body = input === undefined ? "null" : JSON.stringify(input);
    if (timeout) headers["Skep-Timeout"] = `${timeout}ms`;
    const res = await this.#send("POST", path, { body, headers, signal });
    const type = res.headers.get("Content-Type") ?? "";
    if (/[/+]json\b/.test(type)) return res.json();
    return type.startsWith("text/") ? res.text() : new Uint8Array(await res.arrayBuffer());
  }
}

const over = /^run\.(completed|failed|cancelled)$/;

const once = (key = globalThis.crypto?.randomUUID?.() ?? `${Date.now()}-${Math.random()}`) => ({ "Idempotency-Key": key });

async function errorOf(res) {
  const text = await res.text().catch(() => "");
  let p;
  try {
    p = JSON.parse(text);
  } catch {
    p = {};
  }
  const seconds = Number(res.headers.get("Retry-After"));
  const kind = p.kind ?? (res.status === 404 ? "not_found" : res.status >= 502 && res.status <= 504 ? "unavailable" : res.status >= 500 ? "internal" : "invalid");
  return new SkepError(kind, p.detail ?? `the server answered ${res.status}`, {
    hint: p.hint, limit: p.limit, status: res.status, after: seconds > 0 ? seconds * 1000 : undefined,
  });
}

/** messages reads a text/event-stream body: the data of each event, as JSON. */
async function* messages(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "", data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      for (let end; (end = text.indexOf("\n")) >= 0; text = text.slice(end + 1)) {
        const line = text.slice(0, end).replace(/\r$/, "");
        if (line === "" && data.length > 0) {
          yield JSON.parse(data.join("\n"));
          data = [];
        } else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      }
    }
  } catch (e) {
    throw e instanceof SkepError ? e : unavailable("the stream of events broke off", e);
  } finally {
    reader.cancel().catch(() => {});
  }
}
