// Blob, File and FormData, and FormData's two encodings.
import { copyBytes, isBuffer, isView, joinBytes } from "./primordials.js";
import { define } from "./host.js";
import { cloneable } from "./clone.js";
import { decode, encode } from "./encoding.js";

let bytesOf;

export class Blob {
  #bytes;
  #type;
  static {
    bytesOf = (b) => b.#bytes;
  }
  constructor(parts = [], options = {}) {
    if (typeof parts !== "object" || parts === null || typeof parts[Symbol.iterator] !== "function") throw new TypeError("Blob: a list of parts is required");
    const lines = options?.endings === "native" ? (s) => s.replace(/\r\n?/g, "\n") : (s) => s;
    this.#bytes = joinBytes(Array.from(parts, (p) => (p instanceof Blob ? p.#bytes : isBuffer(p) || isView(p) ? copyBytes(p) : encode(lines(String(p))))));
    const type = String(options?.type ?? "");
    this.#type = /[^\x20-\x7e]/.test(type) ? "" : type.toLowerCase();
  }
  get size() { return this.#bytes.length; }
  get type() { return this.#type; }
  slice(start, end, type = "") { return new Blob([this.#bytes.slice(start, end)], { type }); }
  async arrayBuffer() { return this.#bytes.slice().buffer; }
  async bytes() { return this.#bytes.slice(); }
  async text() { return decode(this.#bytes); }
  stream() {
    const bytes = this.#bytes;
    return new ReadableStream({
      start(c) {
        if (bytes.length) c.enqueue(bytes.slice());
        c.close();
      },
    });
  }
  get [Symbol.toStringTag]() { return "Blob"; }
}

export class File extends Blob {
  #name;
  #modified;
  constructor(parts, name, options = {}) {
    if (arguments.length < 2) throw new TypeError("File: parts and a name are required");
    super(parts, options);
    this.#name = String(name);
    this.#modified = options?.lastModified ?? Date.now();
  }
  get name() { return this.#name; }
  get lastModified() { return this.#modified; }
  get [Symbol.toStringTag]() { return "File"; }
}
cloneable(File, (f) => new File([f], f.name, { type: f.type, lastModified: f.lastModified }));
cloneable(Blob, (b) => new Blob([b], { type: b.type }));

export { bytesOf as blobBytes };

export class FormData {
  #list = [];
  #entry(name, value, filename) {
    if (value instanceof Blob) {
      if (!(value instanceof File) || filename !== undefined) value = new File([value], filename ?? value.name ?? "blob", { type: value.type });
    } else {
      value = String(value);
    }
    return [String(name), value];
  }
  append(name, value, filename) { this.#list.push(this.#entry(name, value, filename)); }
  set(name, value, filename) {
    const e = this.#entry(name, value, filename);
    const i = this.#list.findIndex(([n]) => n === e[0]);
    if (i < 0) {
      this.#list.push(e);
    } else {
      this.#list[i] = e;
      this.#list = this.#list.filter(([n], k) => k <= i || n !== e[0]);
    }
  }
  get(name) { return this.#list.find(([n]) => n === String(name))?.[1] ?? null; }
  getAll(name) { return this.#list.filter(([n]) => n === String(name)).map(([, v]) => v); }
  has(name) { return this.#list.some(([n]) => n === String(name)); }
  delete(name) { this.#list = this.#list.filter(([n]) => n !== String(name)); }
  forEach(fn, self) { for (const [n, v] of this.#list) fn.call(self, v, n, this); }
  *entries() { for (const [n, v] of this.#list) yield [n, v]; }
  *keys() { for (const [n] of this.#list) yield n; }
  *values() { for (const [, v] of this.#list) yield v; }
  [Symbol.iterator]() { return this.entries(); }
  get [Symbol.toStringTag]() { return "FormData"; }
}

const quote = (s) => s.replace(/\r\n?|\n/g, "\r\n").replace(/[\r\n"]/g, (c) => ({ "\r": "%0D", "\n": "%0A", '"': "%22" })[c]);

// encodeForm returns the multipart/form-data body of form and its content type.
export function encodeForm(form) {
  const boundary = "----skep" + crypto.randomUUID().replaceAll("-", "");
  const parts = [];
  for (const [name, value] of form) {
    let head = `--${boundary}\r\nContent-Disposition: form-data; name="${quote(name)}"`;
    if (typeof value === "string") {
      parts.push(encode(`${head}\r\n\r\n${value.replace(/\r\n?|\n/g, "\r\n")}\r\n`));
    } else {
      head += `; filename="${quote(value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}\r\n\r\n`;
      parts.push(encode(head), bytesOf(value), encode("\r\n"));
    }
  }
  parts.push(encode(`--${boundary}--\r\n`));
  return [joinBytes(parts), `multipart/form-data; boundary=${boundary}`];
}

// find returns where needle stands in b at or after from, or -1.
function find(b, needle, from) {
  for (let i = b.indexOf(needle[0], from); i >= 0 && i + needle.length <= b.length; i = b.indexOf(needle[0], i + 1)) {
    let k = 1;
    while (k < needle.length && b[i + k] === needle[k]) k++;
    if (k === needle.length) return i;
  }
  return -1;
}

const unquote = (s) => s.replace(/%0D%0A|%0D|%0A|%22/g, (c) => ({ "%0D%0A": "\r\n", "%0D": "\r", "%0A": "\n", "%22": '"' })[c]);

function decodeMultipart(bytes, boundary) {
  const form = new FormData();
  const bad = () => new TypeError("the body is not valid multipart/form-data");
  const mark = encode("--" + boundary);
  let at = find(bytes, mark, 0);
  if (at !== 0) throw bad();
  for (at += mark.length; !(bytes[at] === 45 && bytes[at + 1] === 45); ) {
    if (bytes[at] !== 13 || bytes[at + 1] !== 10) throw bad();
    const headEnd = find(bytes, encode("\r\n\r\n"), at);
    const end = headEnd < 0 ? -1 : find(bytes, joinBytes([encode("\r\n"), mark]), headEnd + 2);
    if (end < 0) throw bad();
    const head = decode(bytes.subarray(at + 2, headEnd));
    const name = /^content-disposition:[^\r\n]*[;\s]name="([^"]*)"/im.exec(head);
    if (!name) throw bad();
    const file = /^content-disposition:[^\r\n]*;\s*filename="([^"]*)"/im.exec(head);
    const type = /^content-type:\s*([^\r\n]*)/im.exec(head);
    const body = bytes.slice(headEnd + 4 > end ? end : headEnd + 4, end);
    form.append(unquote(name[1]), file ? new File([body], unquote(file[1]), { type: type?.[1] ?? "text/plain" }) : decode(body));
    at = end + 2 + mark.length;
  }
  return form;
}

// decodeForm reads a body of one of FormData's two media types.
export function decodeForm(bytes, type) {
  if (/^multipart\/form-data\b/i.test(type)) {
    const b = /;\s*boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(type);
    if (b) return decodeMultipart(bytes, b[1] ?? b[2]);
  } else if (/^application\/x-www-form-urlencoded\b/i.test(type)) {
    const form = new FormData();
    for (const [n, v] of new URLSearchParams(decode(bytes))) form.append(n, v);
    return form;
  }
  throw new TypeError(`formData: the content type ${JSON.stringify(type)} is not that of a form`);
}

define({ Blob, File, FormData });
