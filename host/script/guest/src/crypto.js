// Web Crypto: random values, and of subtle what the host does in Go: digests, HMAC, ECDSA P-256 and Ed25519.
import { copyBytes, isBuffer, isView, record, stringify } from "./primordials.js";
import { define, host, refuseWhileLoading } from "./host.js";
import { cloneable } from "./clone.js";

const notSupported = (what) => new DOMException(`${what} is not supported; digests, HMAC, ECDSA with P-256 and Ed25519 are`, "NotSupportedError");
const hashes = { __proto__: null, "SHA-1": 64, "SHA-256": 64, "SHA-384": 128, "SHA-512": 128 }; // block sizes
const none = new Uint8Array();

function algorithm(a) {
  const o = typeof a === "string" ? { name: a } : a;
  if (typeof o !== "object" || o === null || o.name === undefined) throw new TypeError("an algorithm needs a name");
  const name = String(o.name);
  const known = [...Object.keys(hashes), "HMAC", "ECDSA", "Ed25519"].find((n) => n.toLowerCase() === name.toLowerCase());
  if (!known) throw notSupported(`the algorithm ${name}`);
  return { ...o, name: known };
}

function hashName(a) {
  if (a === undefined) throw new TypeError("the algorithm needs a hash");
  const { name } = algorithm(a);
  if (!(name in hashes)) throw notSupported(`the hash ${name}`);
  return name;
}

function data(v) {
  if (!isBuffer(v) && !isView(v)) throw new TypeError("an ArrayBuffer or a view of one is required");
  return copyBytes(v);
}

// run asks the host, which answers with bytes, or with "Name: what is wrong".
function run(op, head, a = none, b = none) {
  const r = host.crypto(stringify(record({ op, ...head })), a, b);
  if (typeof r !== "string") return r;
  const i = r.indexOf(": ");
  throw new DOMException(r.slice(i + 2), r.slice(0, i));
}

const secret = Symbol("CryptoKey");
let inside; // the bytes of a key

class CryptoKey {
  #type;
  #extractable;
  #algorithm;
  #usages;
  #bytes;
  static {
    inside = (k) => k.#bytes;
  }
  constructor(key, type, extractable, algorithm, usages, bytes) {
    if (key !== secret) throw new TypeError("CryptoKey: use crypto.subtle");
    this.#type = type;
    this.#extractable = !!extractable;
    this.#algorithm = algorithm;
    this.#usages = usages;
    this.#bytes = bytes;
  }
  get type() { return this.#type; }
  get extractable() { return this.#extractable; }
  get algorithm() { return this.#algorithm; }
  get usages() { return [...this.#usages]; }
  get [Symbol.toStringTag]() { return "CryptoKey"; }
}
const makeKey = (type, extractable, alg, usages, allowed, bytes) => {
  const list = [...usages].map(String);
  for (const u of list) if (!allowed.includes(u)) throw new DOMException(`a ${type} key for ${alg.name} cannot be used to ${u}`, "SyntaxError");
  if (list.length === 0 && type !== "public") throw new DOMException("a key needs at least one usage", "SyntaxError");
  return new CryptoKey(secret, type, extractable, alg, ["sign", "verify"].filter((u) => list.includes(u)), bytes);
};
cloneable(CryptoKey, (k) => new CryptoKey(secret, k.type, k.extractable, k.algorithm, k.usages, inside(k)));

const fromURL = (s) => Uint8Array.fromBase64(s, { alphabet: "base64url" });
const toURL = (b) => b.toBase64({ alphabet: "base64url", omitPadding: true });
const pairAlg = (alg) => {
  if (alg.name === "ECDSA" && alg.namedCurve !== "P-256") throw notSupported(`the curve ${alg.namedCurve}`);
  return alg.name === "ECDSA" ? { name: "ECDSA", namedCurve: "P-256" } : { name: "Ed25519" };
};

function use(key, alg, usage) {
  if (!(key instanceof CryptoKey)) throw new TypeError("a CryptoKey is required");
  if (key.algorithm.name !== alg.name) throw new DOMException(`the key is for ${key.algorithm.name}, not ${alg.name}`, "InvalidAccessError");
  if (!key.usages.includes(usage)) throw new DOMException(`the key may not be used to ${usage}`, "InvalidAccessError");
}

const signHead = (alg, key) => ({ alg: alg.name, hash: alg.name === "HMAC" ? key.algorithm.hash.name : alg.name === "ECDSA" ? hashName(alg.hash) : "" });

class SubtleCrypto {
  async digest(alg, bytes) { return run("digest", { hash: hashName(alg) }, data(bytes)).buffer; }
  async sign(alg, key, bytes) {
    alg = algorithm(alg);
    use(key, alg, "sign");
    if (alg.name !== "HMAC" && key.type !== "private") throw new DOMException("a private key is required to sign", "InvalidAccessError");
    return run("sign", signHead(alg, key), inside(key), data(bytes)).buffer;
  }
  async verify(alg, key, signature, bytes) {
    alg = algorithm(alg);
    use(key, alg, "verify");
    const sig = data(signature);
    return run("verify", { ...signHead(alg, key), sig: sig.toBase64() }, inside(key), data(bytes))[0] === 1;
  }
  async generateKey(alg, extractable, usages) {
    alg = algorithm(alg);
    refuseWhileLoading("crypto.subtle.generateKey");
    if (alg.name === "HMAC") {
      const hash = hashName(alg.hash);
      const bits = alg.length ?? hashes[hash] * 8;
      if (!(bits > 0 && bits <= 65536 && bits % 8 === 0)) throw new DOMException("the key's length must be a positive multiple of 8 bits", "OperationError");
      const bytes = crypto.getRandomValues(new Uint8Array(bits / 8));
      return makeKey("secret", extractable, { name: "HMAC", hash: { name: hash }, length: bits }, usages, ["sign", "verify"], bytes);
    }
    if (alg.name in hashes) throw notSupported(`a key for ${alg.name}`);
    const a = pairAlg(alg);
    const bytes = run("generate", { alg: a.name });
    const of = (u) => [...usages].filter((x) => x === u);
    for (const u of usages) if (u !== "sign" && u !== "verify") throw new DOMException(`a key for ${a.name} cannot be used to ${u}`, "SyntaxError");
    return {
      publicKey: makeKey("public", true, a, of("verify"), ["verify"], run("public", { alg: a.name }, bytes)),
      privateKey: makeKey("private", extractable, a, of("sign"), ["sign"], bytes),
    };
  }
  async importKey(format, key, alg, extractable, usages) {
    alg = algorithm(alg);
    if (alg.name === "HMAC") {
      const hash = hashName(alg.hash);
      const bytes = format === "jwk" ? fromURL(String(key.k)) : format === "raw" ? data(key) : undefined;
      if (!bytes) throw notSupported(`the key format ${format} for HMAC`);
      if (bytes.length === 0) throw new DOMException("the key is empty", "DataError");
      return makeKey("secret", extractable, { name: "HMAC", hash: { name: hash }, length: bytes.length * 8 }, usages, ["sign", "verify"], bytes);
    }
    if (alg.name in hashes) throw notSupported(`a key for ${alg.name}`);
    const a = pairAlg(alg);
    const isPrivate = format === "pkcs8" || (format === "jwk" && key.d !== undefined);
    const bytes = format === "jwk" ? run("import", { alg: a.name, format, jwk: { kty: key.kty, crv: key.crv, x: key.x, y: key.y, d: key.d } }) : run("import", { alg: a.name, format: String(format) }, data(key));
    return isPrivate ? makeKey("private", extractable, a, usages, ["sign"], bytes) : makeKey("public", extractable, a, usages, ["verify"], bytes);
  }
  async exportKey(format, key) {
    if (!(key instanceof CryptoKey)) throw new TypeError("a CryptoKey is required");
    if (!key.extractable) throw new DOMException("the key is not extractable", "InvalidAccessError");
    const { name } = key.algorithm;
    if (name === "HMAC") {
      if (format === "raw") return inside(key).slice().buffer;
      if (format === "jwk") return { kty: "oct", k: toURL(inside(key)), alg: "HS" + key.algorithm.hash.name.slice(4), key_ops: key.usages, ext: true };
      throw notSupported(`the key format ${format} for HMAC`);
    }
    const out = run("export", { alg: name, format: String(format), private: key.type === "private" }, inside(key));
    return format === "jwk" ? { ...JSON.parse(new TextDecoder().decode(out)), key_ops: key.usages, ext: true } : out.buffer;
  }
}
for (const m of ["encrypt", "decrypt", "deriveBits", "deriveKey", "wrapKey", "unwrapKey"]) {
  SubtleCrypto.prototype[m] = async () => {
    throw notSupported(`crypto.subtle.${m}`);
  };
}

const hex = Array.from({ length: 256 }, (_, i) => i.toString(16).padStart(2, "0"));

class Crypto {
  #subtle = new SubtleCrypto();
  get subtle() { return this.#subtle; }
  getRandomValues(view) {
    refuseWhileLoading("crypto.getRandomValues");
    if (!isView(view) || view instanceof DataView || view instanceof Float32Array || view instanceof Float64Array) throw new DOMException("getRandomValues: an integer typed array is required", "TypeMismatchError");
    if (view.byteLength > 65536) throw new DOMException("getRandomValues: at most 65536 bytes at a time", "QuotaExceededError");
    host.random(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
    return view;
  }
  randomUUID() {
    refuseWhileLoading("crypto.randomUUID");
    const b = new Uint8Array(16);
    host.random(b);
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let s = "";
    for (let i = 0; i < 16; i++) s += (i === 4 || i === 6 || i === 8 || i === 10 ? "-" : "") + hex[b[i]];
    return s;
  }
}

define({ Crypto, CryptoKey, SubtleCrypto, crypto: new Crypto() });
