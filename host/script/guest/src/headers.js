// Headers (Fetch Standard). Of the guards only "immutable" is kept: there are no cookies of a user here to protect.
import { define } from "./host.js";

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

function checkName(name) {
  name = String(name);
  if (!token.test(name)) throw new TypeError(`Headers: ${JSON.stringify(name)} is not a header name`);
  return name.toLowerCase();
}

function checkValue(value) {
  value = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
  if (/[\0\n\r]/.test(value) || /[^\0-\xff]/.test(value)) throw new TypeError(`Headers: ${JSON.stringify(value)} is not a header value`);
  return value;
}

let isEmpty; // reports whether there are no headers
let received; // makes the headers of a response: as they came, and not to be changed
export { isEmpty, received as receivedHeaders };

export class Headers {
  #map = new Map(); // lower-case name -> values
  #immutable = false;
  static {
    isEmpty = (h) => h.#map.size === 0;
    received = (pairs) => {
      const h = new Headers();
      for (const [name, value] of pairs) {
        const list = h.#map.get(name.toLowerCase());
        if (list) list.push(value);
        else h.#map.set(name.toLowerCase(), [value]);
      }
      h.#immutable = true;
      return h;
    };
  }
  #change() {
    if (this.#immutable) throw new TypeError("Headers: those of a received response cannot be changed; new Response(body, response) has some of its own");
    return this.#map;
  }
  constructor(init) {
    if (init == null) return;
    if (typeof init !== "object") throw new TypeError("Headers: an object or a list of pairs is required");
    if (typeof init[Symbol.iterator] === "function") {
      for (const pair of init) {
        const [name, value, ...rest] = [...pair];
        if (value === undefined || rest.length) throw new TypeError("Headers: each pair must have a name and a value");
        this.append(name, value);
      }
    } else {
      for (const name of Reflect.ownKeys(init)) if (Object.getOwnPropertyDescriptor(init, name).enumerable) this.append(name, init[name]);
    }
  }
  append(name, value) {
    name = checkName(name);
    value = checkValue(value);
    const list = this.#change().get(name);
    if (list) list.push(value);
    else this.#map.set(name, [value]);
  }
  set(name, value) { this.#change().set(checkName(name), [checkValue(value)]); }
  get(name) { return this.#map.get(checkName(name))?.join(", ") ?? null; }
  has(name) { return this.#map.has(checkName(name)); }
  delete(name) { this.#change().delete(checkName(name)); }
  getSetCookie() { return [...(this.#map.get("set-cookie") ?? [])]; }
  forEach(fn, self) { for (const [name, value] of this) fn.call(self, value, name, this); }
  *entries() {
    for (const name of [...this.#map.keys()].sort()) {
      const list = this.#map.get(name);
      if (name === "set-cookie") for (const v of list) yield [name, v];
      else yield [name, list.join(", ")];
    }
  }
  *keys() { for (const [name] of this) yield name; }
  *values() { for (const [, value] of this) yield value; }
  [Symbol.iterator]() { return this.entries(); }
  get [Symbol.toStringTag]() { return "Headers"; }
}

define({ Headers });
