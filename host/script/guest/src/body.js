// The body of a Request or a Response (Fetch Standard): bytes, a stream, or what the host still receives.
import { copyBytes, isBuffer, isView, joinBytes, viewBytes } from "./primordials.js";
import { decode, encode } from "./encoding.js";
import { Blob, blobBytes, decodeForm, encodeForm, FormData } from "./blob.js";
import { Remote } from "./remote.js";

// extract returns the body [bytes or stream, content type] of a BodyInit.
export function extract(v) {
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
    parts.push(chunkBytes(value));
  }
}

// chunkBytes returns the bytes of what a body's stream yielded.
export function chunkBytes(value) {
  if (typeof value === "string") return encode(value);
  if (isBuffer(value) || isView(value)) return viewBytes(value);
  throw new TypeError("a body's stream must yield bytes or strings");
}

const oneChunk = (bytes) => new ReadableStream({
  type: "bytes",
  start(c) {
    if (bytes.length) c.enqueue(bytes.slice());
    c.close();
  },
});

let claim; // (body owner) => its source: null, bytes, a stream or a Remote; the body is used up
let share; // (body owner) => what clone or a new Request may use

// read returns all bytes of a source, or a promise of them.
const read = async (s) => (s === null ? new Uint8Array() : s instanceof ReadableStream ? drain(s) : s instanceof Remote ? s.all() : s);

export class Body {
  #source;
  #stream = null; // the stream an author asked for
  #used = false;
  static {
    claim = (b) => {
      if (b.bodyUsed) throw new TypeError("the body was read already");
      if (b.#stream?.locked) throw new TypeError("the body's stream is locked");
      b.#used = true;
      return b.#stream ?? b.#source;
    };
    share = (b, keep) => {
      if (b.bodyUsed || b.#stream?.locked) throw new TypeError("the body was read already");
      const s = b.#source instanceof Remote ? b.body : b.#stream ?? b.#source;
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
    if (!this.#stream) {
      const s = this.#source;
      this.#stream = s instanceof ReadableStream ? s : this.#used ? oneChunk(new Uint8Array()) : s instanceof Remote ? s.stream() : oneChunk(s);
    }
    return this.#stream;
  }
  get bodyUsed() { return this.#source !== null && (this.#used || !!this.#stream?._disturbed); }
  async arrayBuffer() { return copyBytes(await read(claim(this))).buffer; }
  async bytes() { return copyBytes(await read(claim(this))); }
  async text() { return decode(await read(claim(this))); }
  async json() { return JSON.parse(decode(await read(claim(this)))); }
  async blob() { return new Blob([await read(claim(this))], { type: this.headers.get("content-type") ?? "" }); }
  async formData() { return decodeForm(await read(claim(this)), this.headers.get("content-type") ?? ""); }
}
export { claim as claimBody, read as readSource, share as shareBody };

// takeBody returns a promise of the bytes of a body, which is used up.
export async function takeBody(owner) { return read(claim(owner)); }
