// Request, Response and fetch (Fetch Standard, with the habits of Workers where that leaves a choice).
import { ErrorClass, list, record, stringify } from "./primordials.js";
import { callHost, define, host, refuseWhileLoading } from "./host.js";
import { encode } from "./encoding.js";
import { Body, chunkBytes, claimBody, extract, shareBody } from "./body.js";
import { Headers, isEmpty, receivedHeaders } from "./headers.js";
import { Remote, requestError, watch } from "./remote.js";

const methods = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

let signalOf; // (request) => its signal, or undefined when nobody gave it one

export class Request extends Body {
  #method;
  #url;
  #headers;
  #signal;
  #redirect;
  static {
    signalOf = (r) => r.#signal;
  }
  constructor(input, init = {}) {
    init ??= {};
    const from = input instanceof Request ? input : null;
    let url;
    try {
      url = from ? from.url : new URL(String(input)).href;
    } catch {
      throw new TypeError(`Request: ${JSON.stringify(String(input))} is not an absolute URL`);
    }
    let method = String(init.method ?? from?.method ?? "GET");
    if (method !== "GET" && method !== "POST" && !/^[!#$%&'*+\-.^_\`|~0-9A-Za-z]+$/.test(method)) throw new TypeError(`Request: ${JSON.stringify(method)} is not a method`);
    if (/^(connect|trace|track)$/i.test(method)) throw new TypeError(`Request: the method ${method} is not allowed`);
    if (methods.includes(method.toUpperCase())) method = method.toUpperCase();
    const headers = new Headers(init.headers ?? from?.headers);
    let source = null;
    if (init.body != null) {
      if (method === "GET" || method === "HEAD") throw new TypeError(`Request: ${method} cannot have a body`);
      const [s, type] = extract(init.body);
      source = s;
      if (type && !headers.has("content-type")) headers.set("content-type", type);
    } else if (from) {
      source = shareBody(from, false);
    }
    const redirect = init.redirect ?? from?.redirect ?? "follow";
    if (redirect !== "follow" && redirect !== "error" && redirect !== "manual") throw new TypeError(`Request: redirect is ${JSON.stringify(redirect)}; it may be "follow", "error" or "manual"`);
    if (init.duplex !== undefined && init.duplex !== "half") throw new TypeError(`Request: duplex may be "half" only`);
    const signal = init.signal === undefined ? from && signalOf(from) : init.signal;
    if (signal != null && !(signal instanceof AbortSignal)) throw new TypeError("Request: signal must be an AbortSignal");
    super(source);
    this.#method = method;
    this.#url = url;
    this.#headers = headers;
    this.#signal = signal ?? undefined;
    this.#redirect = redirect;
  }
  get method() { return this.#method; }
  get url() { return this.#url; }
  get headers() { return this.#headers; }
  get signal() { return (this.#signal ??= new AbortController().signal); }
  get redirect() { return this.#redirect; }
  get duplex() { return "half"; }
  get cache() { return "default"; }
  get credentials() { return "same-origin"; }
  get mode() { return "cors"; }
  get referrer() { return "about:client"; }
  get keepalive() { return false; }
  get integrity() { return ""; }
  clone() {
    const body = shareBody(this, true);
    return new Request(this.#url, { method: this.#method, headers: this.#headers, signal: this.#signal, redirect: this.#redirect, body });
  }
  get [Symbol.toStringTag]() { return "Request"; }
}

const nullBody = [101, 103, 204, 205, 304];
let build; // makes a Response with what its constructor refuses
const inside = Symbol("inside");

export class Response extends Body {
  #status;
  #statusText;
  #headers;
  #url = "";
  #type = "default";
  #redirected = false;
  static {
    build = (source, { status, statusText = "", headers, url = "", type = "default", redirected = false }) => {
      const r = new Response(source, headers, inside);
      r.#status = status;
      r.#statusText = statusText;
      r.#url = url;
      r.#type = type;
      r.#redirected = redirected;
      return r;
    };
  }
  constructor(body = null, init = {}, key) {
    if (key === inside) {
      super(body);
      this.#headers = init;
      return;
    }
    init ??= {};
    const status = init.status === undefined ? 200 : Math.trunc(+init.status);
    if (!(status >= 200 && status <= 599)) throw new RangeError(`Response: the status ${init.status} is not between 200 and 599`);
    const headers = new Headers(init.headers);
    let source = null;
    if (body !== null && body !== undefined) {
      if (nullBody.includes(status)) throw new TypeError(`Response: status ${status} cannot have a body`);
      const [s, type] = extract(body);
      source = s;
      if (type && !headers.has("content-type")) headers.set("content-type", type);
    }
    super(source);
    this.#status = status;
    this.#statusText = String(init.statusText ?? "");
    this.#headers = headers;
  }
  get status() { return this.#status; }
  get statusText() { return this.#statusText; }
  get ok() { return this.#status >= 200 && this.#status <= 299; }
  get headers() { return this.#headers; }
  get url() { return this.#url; }
  get type() { return this.#type; }
  get redirected() { return this.#redirected; }
  clone() {
    return build(shareBody(this, true), record({
      status: this.#status, statusText: this.#statusText, headers: new Headers(this.#headers), url: this.#url, type: this.#type, redirected: this.#redirected,
    }));
  }
  static error() { return build(null, record({ status: 0, headers: receivedHeaders([]), type: "error" })); }
  static json(data, init = {}) {
    const text = JSON.stringify(data);
    if (text === undefined) throw new TypeError("Response.json: the value has no JSON form");
    const headers = new Headers(init?.headers);
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
    return new Response(encode(text), { ...init, headers });
  }
  static redirect(url, status = 302) {
    if (![301, 302, 303, 307, 308].includes(status)) throw new RangeError(`Response.redirect: ${status} is not a redirect status`);
    return new Response(null, { status, headers: { location: new URL(url).href } });
  }
  get [Symbol.toStringTag]() { return "Response"; }
}

// headerList returns headers as the pairs that travel to the host.
export function headerList(headers) {
  const out = [];
  for (const [name, value] of headers) out.push(list([name, value]));
  return list(out);
}

// perHop names the headers that are about one connection, which the host makes by itself. As elsewhere, they are left out.
const perHop = record({
  connection: true, "content-length": true, expect: true, host: true, "keep-alive": true, "proxy-connection": true, te: true, trailer: true,
  "transfer-encoding": true, upgrade: true,
});

// sentHeaders returns headers as JSON, or nothing when there are none.
function sentHeaders(headers) {
  if (isEmpty(headers)) return "";
  const out = list([]);
  let n = 0;
  for (const [name, value] of headers) if (!perHop[name]) out[n++] = list([name, value]);
  return stringify(out);
}

// largestPiece is how much of a request's body one call takes.
const largestPiece = 256 << 10;

const nothing = new Uint8Array();

// send passes a stream to the exchange id. It returns when the stream has ended or the server takes no more of it.
async function send(id, reader, stack) {
  for (;;) {
    const { done, value } = await reader.read();
    const bytes = done ? nothing : chunkBytes(value);
    for (let at = 0; at === 0 || at < bytes.length; at += largestPiece) {
      try {
        await callHost((call) => host.write(call, id, done, bytes.subarray(at, at + largestPiece)), stack);
      } catch (e) {
        reader.cancel(requestError(e, stack)).catch(() => {});
        return;
      }
    }
    if (done) return;
  }
}

// stream makes a request whose body is a stream, and returns a promise of what open's answer is else.
async function stream(open, body, stack, w) {
  const reader = body.getReader();
  const giveUp = (reason) => reader.cancel(reason).catch(() => {});
  let stop;
  let failed;
  w.act = (reason) => {
    stop(reason);
    giveUp(reason);
  };
  const opened = await callHost(open, stack, (s) => (stop = s));
  const { id } = opened.head;
  const answer = callHost((call) => host.head(call, id), stack, (s) => (stop = s));
  w.act = (reason) => {
    host.close(id);
    stop(reason);
    giveUp(reason);
  };
  send(id, reader, stack).catch((e) => {
    failed = new TypeError(`the request's body failed: ${e?.message ?? e}`, { cause: e });
    host.close(id);
    stop(failed);
    giveUp(e);
  });
  const got = await answer;
  if (failed) throw failed;
  return got;
}

async function fetch(input, init) {
  refuseWhileLoading("fetch");
  const { stack } = new ErrorClass(); // where an error of this call will say it is from
  const req = new Request(input, init);
  const signal = signalOf(req);
  signal?.throwIfAborted();
  const body = claimBody(req);
  const header = sentHeaders(req.headers);
  const w = watch(signal);
  let got;
  try {
    if (body instanceof ReadableStream) {
      const length = req.headers.get("content-length");
      const known = length !== null && /^[0-9]{1,15}$/.test(length) ? +length : -1;
      got = await stream((call) => host.open(call, req.method, req.url, header, req.redirect, known, undefined), body, stack, w);
    } else {
      got = await callHost((call) => host.open(call, req.method, req.url, header, req.redirect, undefined, body ?? undefined), stack, (stop) => (w.act = stop));
    }
  } catch (e) {
    w.end();
    throw requestError(e, stack);
  }
  const answer = got.head;
  let source = got.bytes ?? nothing;
  if (answer.end) w.end();
  else source = new Remote(answer.id, got.bytes, stack, w);
  if (req.method === "HEAD" || nullBody.includes(answer.status)) {
    if (source instanceof Remote) source.cancel();
    source = null;
  }
  return build(source, record({
    status: answer.status, statusText: answer.statusText, headers: receivedHeaders(answer.header ?? []), url: answer.url, type: "basic",
    redirected: answer.redirected === true,
  }));
}

define({ Request, Response, fetch });
