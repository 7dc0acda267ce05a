// Connections of clients with an instance.
import { TypeErrorClass, isArray, isBuffer, isView, record, stringify, then, toBase64, toWellFormed, viewBytes } from "./primordials.js";
import { call } from "./durable.js";
import { json } from "./host.js";

// frameOf writes data into q: text, bytes, or what has a JSON form as its text.
function frameOf(q, data) {
  if (typeof data === "string") q.text = toWellFormed(data);
  else if (isBuffer(data) || isView(data)) q.base64 = toBase64(viewBytes(data));
  else {
    q.text = stringify(data);
    if (q.text === undefined) throw new TypeErrorClass(`send: ${typeof data} has no JSON form`);
  }
  return stringify(q);
}

const nothing = () => {};

// sendTo sends a frame to one connection.
export const sendTo = (id, data) => then(call("send", "socket.send", () => frameOf(record({ to: [id] }), data)), nothing);

export class Connection {
  #id;
  #tags;
  #attachment;
  constructor(s) {
    this.#id = s.id;
    this.#tags = s.tags ?? [];
    this.#attachment = s.attachment;
  }
  get id() { return this.#id; }
  get tags() { return [...this.#tags]; }
  get attachment() { return this.#attachment; }
  get state() { return this.#attachment; }
  send(data) { return sendTo(this.#id, data); }
  close(code, reason) {
    return then(call("close", "socket.close", () => stringify(record({ id: this.#id, code, reason }))), nothing);
  }
  attach(value) {
    return then(call("attach", "socket.attach", () => {
      const text = json(value);
      this.#attachment = JSON.parse(text);
      return `{"id":${stringify(this.#id)},"attachment":${text}}`;
    }), nothing);
  }
  setState(value) { return this.attach(value); }
  setTags(tags) {
    return then(call("setTags", "socket.attach", () => {
      if (!isArray(tags)) throw new TypeErrorClass("setTags takes an array of texts");
      this.#tags = [...tags];
      return stringify(record({ id: this.#id, tags: this.#tags }));
    }), nothing);
  }
  toJSON() { return { id: this.#id, tags: this.#tags, attachment: this.#attachment }; }
}

// connections resolves to those that have the tag, or to all.
export function connections(tag) {
  return then(call("connections", "socket.list", () => stringify(record({ tag }))), (out) => {
    const all = [];
    for (let i = 0; i < out.sockets?.length; i++) all[i] = new Connection(out.sockets[i]);
    return all;
  });
}

const idOf = (c) => (typeof c === "string" ? c : c?.id);

// broadcast sends a frame to all connections, or to those that have a tag.
export function broadcast(data, options) {
  return then(call("broadcast", "socket.send", () => {
    const q = record({ tag: options?.tag });
    const except = options?.except;
    if (except !== undefined) {
      q.except = [];
      const all = isArray(except) ? except : [except];
      for (let i = 0; i < all.length; i++) q.except[i] = idOf(all[i]);
    }
    return frameOf(q, data);
  }), nothing);
}
