// Request, Response and fetch (Fetch Standard). Bodies are collected before they cross to the host.
import { ErrorClass, copyBytes, fromBase64, isBuffer, isView, joinBytes, list, parse, record, stringify, toBase64, viewBytes } from "./primordials.js";
import { callHost, define, refuseWhileLoading } from "./host.js";
import { decode, encode } from "./encoding.js";
import { Blob, blobBytes, decodeForm, encodeForm, FormData } from "./blob.js";
import { Headers } from "./headers.js";

// extract returns the body [bytes or stream, content type] of a BodyInit.
function extract(v) {
  if (typeof v === "string") return [encode(v), "text/plain;charset=UTF-8"];
  if (isBuffer(v) || isView(v)) return [copyBytes(v), null];
  if (v instanceof Blob) return [blobBytes(v), v.type || null];
  if (v instanceof FormData) return encodeForm(v);
  if (v instanceof URLSearchParams) return [encode(String(v)), "application/x-www-form-urlencoded;charset=UTF-8"];
  if (v instanceof ReadableStream) {
    if (v.locked) throw new TypeError("the body's stream is locked");
    return [v, null];
  }
  if (typeof v === "object" && v !== null && (v[Symbol.asyncIterator] || (v[Symbol.iterator] && !Array.isArray(v)))) return [ReadableStream.from(v), null];
  return [encode(String(v)), "text/plain;charset=UTF-8"];
}

// drain reads a stream to its end.
async function drain(stream) {
  const reader = stream.getReader();
  const parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return joinBytes(parts);
    if (typeof value === "string") parts.push(encode(value));
    else if (isBuffer(value) || isView(value)) parts.push(viewBytes(value));
    else throw new TypeError("a body's stream must yield bytes or strings");
  }
}

const oneChunk = (bytes) => new ReadableStream({
  type: "bytes",
  start(c) {
    if (bytes.length) c.enqueue(bytes.slice());
    c.close();
  },
});

let take; // (body owner) => promise of its bytes; the body is used up
let share; // (body owner) => what clone or a new Request may use

class Body {
  #source; // null, bytes or a stream
  #stream = null; // the stream an author asked for
  #used = false;
  static {
    take = async (b) => {
      if (b.bodyUsed) throw new TypeError("the body was read already");
      if (b.#stream?.locked) throw new TypeError("the body's stream is locked");
      b.#used = true;
      const s = b.#stream ?? b.#source;
      return s === null ? new Uint8Array() : s instanceof ReadableStream ? drain(s) : s;
    };
    share = (b, keep) => {
      if (b.bodyUsed || b.#stream?.locked) throw new TypeError("the body was read already");
      const s = b.#stream ?? b.#source;
      if (!(s instanceof ReadableStream)) {
        if (!keep && s !== null) b.#used = true;
        return s;
      }
      if (!keep) {
        b.#used = true;
        return s;
      }
      const [mine, other] = s.tee();
      b.#source = mine;
      b.#stream = b.#stream && mine;
      return other;
    };
  }
  constructor(source) { this.#source = source; }
  get body() {
    if (this.#source === null) return null;
    if (!this.#stream) this.#stream = this.#source instanceof ReadableStream ? this.#source : oneChunk(this.#used ? new Uint8Array() : this.#source);
    return this.#stream;
  }
  get bodyUsed() { return this.#source !== null && (this.#used || !!this.#stream?._disturbed); }
  async arrayBuffer() { return copyBytes(await take(this)).buffer; }
  async bytes() { return copyBytes(await take(this)); }
  async text() { return decode(await take(this)); }
  async json() { return JSON.parse(decode(await take(this))); }
  async blob() { return new Blob([await take(this)], { type: this.headers.get("content-type") ?? "" }); }
  async formData() { return decodeForm(await take(this), this.headers.get("content-type") ?? ""); }
}
const take_ = take;
export { take_ as takeBody };

const methods = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

export class Request extends Body {
  #method;
  #url;
  #headers;
  #signal;
  #redirect;
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
    if (!/^[!#$%&'*+\-.^_\`|~0-9A-Za-z]+$/.test(method)) throw new TypeError(`Request: ${JSON.stringify(method)} is not a method`);
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
      source = share(from, false);
    }
    super(source);
    this.#method = method;
    this.#url = url;
    this.#headers = headers;
    this.#signal = init.signal ?? from?.signal ?? new AbortController().signal;
    this.#redirect = init.redirect ?? from?.redirect ?? "follow";
  }
  get method() { return this.#method; }
  get url() { return this.#url; }
  get headers() { return this.#headers; }
  get signal() { return this.#signal; }
  get redirect() { return this.#redirect; }
  get cache() { return "default"; }
  get credentials() { return "same-origin"; }
  get mode() { return "cors"; }
  get referrer() { return "about:client"; }
  get keepalive() { return false; }
  get integrity() { return ""; }
  clone() {
    const body = share(this, true);
    return new Request(this.#url, { method: this.#method, headers: this.#headers, signal: this.#signal, redirect: this.#redirect, body });
  }
  get [Symbol.toStringTag]() { return "Request"; }
}

const nullBody = [101, 103, 204, 205, 304];
let build; // makes a Response with what its constructor refuses

export class Response extends Body {
  #status;
  #statusText;
  #headers;
  #url = "";
  #type = "default";
  #redirected = false;
  static {
    build = (status, headers, body, url) => {
      const r = new Response(nullBody.includes(status) ? null : body, { headers });
      r.#status = status;
      r.#url = url;
      r.#type = status === 0 ? "error" : r.#type;
      return r;
    };
  }
  constructor(body = null, init = {}) {
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
    const r = build(this.#status, this.#headers, share(this, true), this.#url);
    r.#statusText = this.#statusText;
    return r;
  }
  static error() { return build(0, undefined, null, ""); }
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

async function fetch(input, init) {
  refuseWhileLoading("fetch");
  const { stack } = new ErrorClass(); // where an error of this call will say it is from
  const req = new Request(input, init);
  const { signal } = req;
  signal.throwIfAborted();
  const body = await take(req);
  signal.throwIfAborted();
  const head = record({ method: req.method, url: req.url, header: headerList(req.headers), body: toBase64(body) });
  const answer = parse(await callHost("http", stringify(head), stack, (stop) => signal.addEventListener("abort", () => stop(signal.reason), { once: true })));
  return build(answer.status, answer.header ?? undefined, answer.body ? fromBase64(answer.body) : null, req.url);
}

define({ Request, Response, fetch });
