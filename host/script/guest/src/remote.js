// The body of a response that the host still receives: each piece is asked for when somebody reads.
import { defineProperty, joinBytes, record } from "./primordials.js";
import { callHost, host, SkepError } from "./host.js";

// A body that nobody can read any more is given up, when the collector finds out.
const unread = new FinalizationRegistry((id) => host.close(id));

// requestError is what a fetch or the reading of its body rejects with: what the host said is its cause.
export function requestError(e, stack) {
  if (!(e instanceof SkepError)) return e;
  const error = new TypeError(e.message, { cause: e });
  if (stack !== undefined) defineProperty(error, "stack", record({ value: stack, configurable: true, writable: true }));
  return error;
}

// watch calls what act is set to with the signal's reason when it aborts, until end.
export function watch(signal) {
  const w = record({ act: undefined, end: () => {} });
  if (signal) {
    const listener = () => w.act?.(signal.reason);
    signal.addEventListener("abort", listener, { once: true });
    w.end = () => signal.removeEventListener("abort", listener);
  }
  return w;
}

export class Remote {
  #id;
  #begin; // bytes that came with the head, not read yet
  #stack;
  #watch;
  #over = false;
  #failed = false;
  #reason;
  #stop; // abandons the read under way
  #token = {}; // to take it off unread again: the engine would keep a body that were its own token
  #controller; // of the stream, when somebody asked for it
  constructor(id, begin, stack, watch) {
    this.#id = id;
    this.#begin = begin;
    this.#stack = stack;
    this.#watch = watch;
    unread.register(this, id, this.#token);
    const weak = new WeakRef(this); // a signal that lives long keeps no body
    watch.act = (reason) => weak.deref()?.#abort(reason);
  }
  #end() {
    this.#over = true;
    unread.unregister(this.#token);
    this.#watch.end();
  }
  #abort(reason) {
    if (this.#over) return;
    this.#failed = true;
    this.#reason = reason;
    this.cancel();
    this.#stop?.(reason);
    this.#controller?.error(reason);
  }
  // read returns a promise of the next piece: its bytes, and whether it is the last.
  async read() {
    if (this.#failed) throw this.#reason;
    if (this.#begin) {
      const bytes = this.#begin;
      this.#begin = undefined;
      return record({ bytes, last: false });
    }
    if (this.#over) return record({ bytes: new Uint8Array(), last: true });
    let piece;
    try {
      piece = await callHost((id) => host.read(id, this.#id), this.#stack, (stop) => (this.#stop = stop));
    } catch (e) {
      if (!this.#failed) {
        this.#end();
        this.#failed = true;
        this.#reason = requestError(e, this.#stack);
      }
      throw this.#reason;
    }
    if (piece.last) this.#end();
    return piece;
  }
  async all() {
    const parts = [];
    for (;;) {
      const { bytes, last } = await this.read();
      if (last && parts.length === 0) return bytes;
      parts.push(bytes);
      if (last) return joinBytes(parts);
    }
  }
  stream() {
    return new ReadableStream({
      type: "bytes",
      start: (c) => {
        this.#controller = c;
      },
      pull: async (c) => {
        const { bytes, last } = await this.read();
        if (bytes.length) c.enqueue(bytes);
        if (last) {
          c.close();
          c.byobRequest?.respond(0);
        }
      },
      cancel: () => this.cancel(),
    }, { highWaterMark: 0 });
  }
  cancel() {
    if (this.#over) return;
    this.#end();
    host.close(this.#id);
  }
}
