// URL and URLSearchParams (URL Standard). The parser is core-js's. Most URLs need none of its care: one that is surely in
// its serialised form already is only cut into its parts, and a plain reference is put on the end of such a base. The first
// change turns to the parser.
import "core-js/actual/url/index.js";
import { includes, lastIndexOf, match, sliceText as slice } from "./primordials.js";
import { define } from "./host.js";
import "./encoding.js";

const Parser = globalThis.URL;
delete globalThis["__core-js_shared__"];

const serialised = /^(https?:)\/\/((?:[a-z0-9_-]+\.)*[a-z][a-z0-9-]*)(?::([1-9][0-9]{0,3}))?(\/[\w.~!$&'()*+,;=:@/%-]*)?(\?[\w.~!$&()*+,;=:@/?%-]+)?(#[\w.~!$&'()*+,;=:@/?%-]+)?$/;
// A path from the root or from the last slash of the base, without what might be a scheme or a host; a query; a fragment.
const reference = /^(\/(?:[\w.~!$&'()*+,;=:@%-][\w.~!$&'()*+,;=:@/%-]*)?|[\w.~!$&'()*+,;=@%-][\w.~!$&'()*+,;=@/%-]*)?(\?[\w.~!$&()*+,;=:@/?%-]+)?(#[\w.~!$&'()*+,;=:@/?%-]+)?$/;

const hasDots = (path) => includes(path, "/.") || includes(path, "%2e") || includes(path, "%2E");

function partsOf(protocol, host, hostname, port, pathname, search, hash) {
  const origin = `${protocol}//${host}`;
  return { __proto__: null, href: `${origin}${pathname}${search}${hash}`, origin, protocol, username: "", password: "", host, hostname, port, pathname, search, hash };
}

// quick returns the parts of s when it is in its serialised form, else null.
function quick(s) {
  const m = match(serialised, s);
  if (m === null) return null;
  const protocol = m[1], hostname = m[2], port = m[3] ?? "", pathname = m[4] ?? "/";
  if (hasDots(pathname) || includes(hostname, "xn--") || port === (protocol === "http:" ? "80" : "443")) return null; // xn-- is punycode
  return partsOf(protocol, port === "" ? hostname : `${hostname}:${port}`, hostname, port, pathname, m[5] ?? "", m[6] ?? "");
}

// quickFrom returns the parts of the reference s on a base with parts b, when that is as easy, else null.
function quickFrom(s, b) {
  const m = s === "" ? null : match(reference, s);
  if (m === null) return null;
  let pathname = m[1], search = m[2];
  if (pathname === undefined) {
    pathname = b.pathname;
    search ??= b.search; // a fragment alone
  } else {
    if (pathname[0] !== "/") pathname = slice(b.pathname, 0, lastIndexOf(b.pathname, "/") + 1) + pathname;
    if (hasDots(pathname)) return null;
  }
  return partsOf(b.protocol, b.host, b.hostname, b.port, pathname, search ?? "", m[3] ?? "");
}

let lastBase, lastParts; // a base is often used again

let follow; // (params, search) => params say what search says
let owned; // (params, onChange) => params that report their changes

class URL {
  #parts; // until the first change
  #parser = null;
  #params = null;
  constructor(url, base = undefined) {
    if (arguments.length === 0) throw new TypeError("URL: a URL is required");
    const s = `${url}`;
    let parts;
    if (base === undefined) {
      parts = quick(s);
    } else {
      base = `${base}`;
      if (base !== lastBase) {
        lastParts = quick(base);
        lastBase = base;
      }
      parts = lastParts && (quickFrom(s, lastParts) ?? quick(s));
    }
    this.#parts = parts;
    if (parts === null) this.#parser = parse(s, base);
  }
  get href() { return (this.#parser ?? this.#parts).href; }
  set href(v) { this.#change("href", v); }
  get protocol() { return (this.#parser ?? this.#parts).protocol; }
  set protocol(v) { this.#change("protocol", v); }
  get username() { return (this.#parser ?? this.#parts).username; }
  set username(v) { this.#change("username", v); }
  get password() { return (this.#parser ?? this.#parts).password; }
  set password(v) { this.#change("password", v); }
  get host() { return (this.#parser ?? this.#parts).host; }
  set host(v) { this.#change("host", v); }
  get hostname() { return (this.#parser ?? this.#parts).hostname; }
  set hostname(v) { this.#change("hostname", v); }
  get port() { return (this.#parser ?? this.#parts).port; }
  set port(v) { this.#change("port", v); }
  get pathname() { return (this.#parser ?? this.#parts).pathname; }
  set pathname(v) { this.#change("pathname", v); }
  get search() { return (this.#parser ?? this.#parts).search; }
  set search(v) { this.#change("search", v); }
  get hash() { return (this.#parser ?? this.#parts).hash; }
  set hash(v) { this.#change("hash", v); }
  get origin() { return (this.#parser ?? this.#parts).origin; }
  #change(name, value) {
    this.#parser ??= new Parser(this.#parts.href);
    this.#parser[name] = value;
    if (this.#params && (name === "href" || name === "search")) follow(this.#params, this.#parser.search);
  }
  get searchParams() {
    return (this.#params ??= owned(new URLSearchParams(this.search), (s) => {
      this.#parser ??= new Parser(this.#parts.href);
      this.#parser.search = s;
    }));
  }
  toString() { return this.href; }
  toJSON() { return this.href; }
  get [Symbol.toStringTag]() { return "URL"; }
  static canParse(url, base = undefined) {
    try {
      new URL(url, base);
      return true;
    } catch {
      return false;
    }
  }
  static parse(url, base = undefined) {
    try {
      return new URL(url, base);
    } catch {
      return null;
    }
  }
}

function parse(s, base) {
  try {
    return base === undefined ? new Parser(s) : new Parser(s, `${base}`);
  } catch {
    const from = base === undefined ? "" : ` with the base ${JSON.stringify(`${base}`)}`;
    throw new TypeError(`Invalid URL: ${JSON.stringify(s)}${from}`);
  }
}

// decodePart undoes the encoding of application/x-www-form-urlencoded.
function decodePart(s) {
  s = s.replaceAll("+", " ");
  if (!s.includes("%")) return s.toWellFormed();
  try {
    return decodeURIComponent(s.replace(/%(?![0-9A-Fa-f]{2})/g, "%25").toWellFormed());
  } catch {
    // Not UTF-8: the bytes that are not are replaced.
    const bytes = [];
    for (const piece of s.toWellFormed().match(/%[0-9A-Fa-f]{2}|[^%]+|%/g)) {
      if (/^%..$/.test(piece)) bytes.push(parseInt(piece.slice(1), 16));
      else bytes.push(...new TextEncoder().encode(piece));
    }
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
  }
}

const encodePart = (s) => encodeURIComponent(s).replace(/%20|[!'()~]/g, (c) => (c === "%20" ? "+" : "%" + c.charCodeAt(0).toString(16).toUpperCase()));
const text = (v) => `${v}`.toWellFormed();

function pairs(s) {
  const list = [];
  for (const part of s.split("&")) {
    if (part === "") continue;
    const i = part.indexOf("=");
    list.push(i < 0 ? [decodePart(part), ""] : [decodePart(part.slice(0, i)), decodePart(part.slice(i + 1))]);
  }
  return list;
}

class URLSearchParams {
  #list = [];
  #changed = () => {};
  static {
    follow = (p, search) => {
      p.#list = pairs(search.slice(1));
    };
    owned = (p, changed) => {
      p.#changed = changed;
      return p;
    };
  }
  constructor(init = "") {
    if (init === null || (typeof init !== "object" && typeof init !== "function")) {
      const s = `${init}`;
      this.#list = pairs(s[0] === "?" ? s.slice(1) : s);
    } else if (init[Symbol.iterator] != null) {
      for (const pair of init) {
        const p = [...pair];
        if (p.length !== 2) throw new TypeError("URLSearchParams: each pair must have a name and a value");
        this.#list.push([text(p[0]), text(p[1])]);
      }
    } else {
      for (const k of Reflect.ownKeys(init)) if (Object.getOwnPropertyDescriptor(init, k)?.enumerable) this.#list.push([text(k), text(init[k])]);
    }
  }
  get size() { return this.#list.length; }
  append(name, value) {
    this.#list.push([text(name), text(value)]);
    this.#changed(this.toString());
  }
  delete(name, value = undefined) {
    name = text(name);
    value = value === undefined ? undefined : text(value);
    this.#list = this.#list.filter(([n, v]) => n !== name || (value !== undefined && v !== value));
    this.#changed(this.toString());
  }
  get(name) {
    name = text(name);
    return this.#list.find(([n]) => n === name)?.[1] ?? null;
  }
  getAll(name) {
    name = text(name);
    return this.#list.filter(([n]) => n === name).map(([, v]) => v);
  }
  has(name, value = undefined) {
    name = text(name);
    return this.#list.some(([n, v]) => n === name && (value === undefined || v === text(value)));
  }
  set(name, value) {
    name = text(name);
    const i = this.#list.findIndex(([n]) => n === name);
    if (i < 0) {
      this.#list.push([name, text(value)]);
    } else {
      this.#list[i] = [name, text(value)];
      this.#list = this.#list.filter(([n], k) => k <= i || n !== name);
    }
    this.#changed(this.toString());
  }
  sort() {
    this.#list.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#changed(this.toString());
  }
  forEach(fn, self) { for (const [n, v] of this) fn.call(self, v, n, this); }
  *entries() { for (let i = 0; i < this.#list.length; i++) yield [...this.#list[i]]; }
  *keys() { for (const [n] of this.entries()) yield n; }
  *values() { for (const [, v] of this.entries()) yield v; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#list.map(([n, v]) => `${encodePart(n)}=${encodePart(v)}`).join("&"); }
  get [Symbol.toStringTag]() { return "URLSearchParams"; }
}

define({ URL, URLSearchParams });
