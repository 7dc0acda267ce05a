// TextEncoder and TextDecoder (Encoding Standard): UTF-8, UTF-16LE and windows-1252 under its own name latin1.
import { joinBytes, toWellFormed, viewBytes } from "./primordials.js";
import { define, host } from "./host.js";

export const encode = (s) => host.encode(toWellFormed(s));
export const decode = (bytes) => host.decode(bytes, 0); // replaces what is not UTF-8, drops a byte order mark

class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(s = "") { return encode(String(s)); }
  encodeInto(s, dest) {
    s = String(s);
    let read = 0;
    let written = 0;
    for (const ch of s) {
      const b = encode(ch);
      if (written + b.length > dest.length) break;
      dest.set(b, written);
      written += b.length;
      read += ch.length;
    }
    return { read, written };
  }
}

const labels = {
  __proto__: null,
  "utf-8": "utf-8", utf8: "utf-8", "unicode-1-1-utf-8": "utf-8", "unicode11utf8": "utf-8", "unicode20utf8": "utf-8", "x-unicode20utf8": "utf-8",
  "utf-16le": "utf-16le", "utf-16": "utf-16le", "ucs-2": "utf-16le", unicode: "utf-16le", "iso-10646-ucs-2": "utf-16le", csunicode: "utf-16le", unicodefeff: "utf-16le",
};

// unfinished returns how many bytes at the end of b begin a UTF-8 sequence that may go on.
function unfinished(b) {
  for (let i = 1; i <= 3 && i <= b.length; i++) {
    const c = b[b.length - i];
    if (c < 0x80) return 0;
    if (c >= 0xc2) {
      const need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
      return c <= 0xf4 && i < need ? i : 0;
    }
  }
  return 0;
}

class TextDecoder {
  #encoding;
  #fatal;
  #ignoreBOM;
  #rest = null;
  #begun = false;
  constructor(label = "utf-8", options = {}) {
    this.#encoding = labels[String(label).trim().toLowerCase()];
    if (!this.#encoding) throw new RangeError(`TextDecoder: the encoding "${label}" is not supported; utf-8 and utf-16le are`);
    this.#fatal = !!options?.fatal;
    this.#ignoreBOM = !!options?.ignoreBOM;
  }
  get encoding() { return this.#encoding; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreBOM; }
  decode(input, options = {}) {
    let bytes = input === undefined ? new Uint8Array() : viewBytes(input);
    if (this.#rest) bytes = joinBytes([this.#rest, bytes]);
    this.#rest = null;
    if (options?.stream) {
      const keep = this.#encoding === "utf-8" ? unfinished(bytes) : bytes.length % 2;
      if (keep) {
        this.#rest = bytes.slice(bytes.length - keep);
        bytes = bytes.subarray(0, bytes.length - keep);
      }
    }
    const keepBOM = this.#ignoreBOM || this.#begun;
    this.#begun = options?.stream ? this.#begun || bytes.length > 0 : false;
    if (this.#encoding === "utf-8") {
      const s = host.decode(bytes, (this.#fatal ? 1 : 0) | (keepBOM ? 2 : 0));
      if (s === undefined) throw new TypeError("TextDecoder: the data is not valid utf-8");
      return s;
    }
    return this.#utf16(bytes, keepBOM);
  }
  #utf16(bytes, keepBOM) {
    const parts = [];
    for (let i = 0; i + 1 < bytes.length; i += 2) parts.push(String.fromCharCode(bytes[i] | (bytes[i + 1] << 8)));
    let s = parts.join("");
    if (!keepBOM && s[0] === "\ufeff") s = s.slice(1);
    const odd = bytes.length % 2 === 1;
    if (this.#fatal && (odd || !s.isWellFormed())) throw new TypeError("TextDecoder: the data is not valid utf-16le");
    return s.toWellFormed() + (odd ? "\ufffd" : "");
  }
}

define({ TextEncoder, TextDecoder });

// defineStreams adds the two stream forms once TransformStream exists.
export function defineStreams() {
  class TextEncoderStream {
    #t = new TransformStream({ transform(chunk, c) { c.enqueue(encode(String(chunk))); } });
    get encoding() { return "utf-8"; }
    get readable() { return this.#t.readable; }
    get writable() { return this.#t.writable; }
  }
  class TextDecoderStream {
    #d;
    #t;
    constructor(label, options) {
      const d = (this.#d = new TextDecoder(label, options));
      const put = (c, s) => s && c.enqueue(s);
      this.#t = new TransformStream({
        transform(chunk, c) { put(c, d.decode(chunk, { stream: true })); },
        flush(c) { put(c, d.decode()); },
      });
    }
    get encoding() { return this.#d.encoding; }
    get fatal() { return this.#d.fatal; }
    get ignoreBOM() { return this.#d.ignoreBOM; }
    get readable() { return this.#t.readable; }
    get writable() { return this.#t.writable; }
  }
  define({ TextEncoderStream, TextDecoderStream });
}
