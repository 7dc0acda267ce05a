// Event, CustomEvent, EventTarget, AbortController and AbortSignal (DOM Standard, without a tree).
import { define } from "./host.js";
import { report } from "./console.js";

const now = performance.now.bind(performance);

let during; // the dispatch state of an event
let abort;

class Event {
  #type;
  #bubbles;
  #cancelable;
  #composed;
  #prevented = false;
  #time = now();
  #at = { target: null, phase: 0, stop: false, stopNow: false, passive: false }; // while it is dispatched
  static {
    during = (e) => e.#at;
  }
  constructor(type, init = {}) {
    if (arguments.length === 0) throw new TypeError("Event: a type is required");
    this.#type = String(type);
    this.#bubbles = !!init?.bubbles;
    this.#cancelable = !!init?.cancelable;
    this.#composed = !!init?.composed;
  }
  get type() { return this.#type; }
  get bubbles() { return this.#bubbles; }
  get cancelable() { return this.#cancelable; }
  get composed() { return this.#composed; }
  get defaultPrevented() { return this.#prevented; }
  get returnValue() { return !this.#prevented; }
  get target() { return this.#at.target; }
  get srcElement() { return this.#at.target; }
  get currentTarget() { return this.#at.phase ? this.#at.target : null; }
  get eventPhase() { return this.#at.phase; }
  get timeStamp() { return this.#time; }
  get isTrusted() { return false; }
  get cancelBubble() { return this.#at.stop; }
  composedPath() { return this.#at.phase ? [this.#at.target] : []; }
  preventDefault() { if (this.#cancelable && !this.#at.passive) this.#prevented = true; }
  stopPropagation() { this.#at.stop = true; }
  stopImmediatePropagation() { this.#at.stop = this.#at.stopNow = true; }
}
for (const [name, value] of [["NONE", 0], ["CAPTURING_PHASE", 1], ["AT_TARGET", 2], ["BUBBLING_PHASE", 3]]) {
  for (const o of [Event, Event.prototype]) Object.defineProperty(o, name, { value, enumerable: true });
}

class CustomEvent extends Event {
  #detail;
  constructor(type, init = {}) {
    super(type, init);
    this.#detail = init?.detail ?? null;
  }
  get detail() { return this.#detail; }
}

class ErrorEvent extends Event {
  constructor(type, init = {}) {
    super(type, init);
    this.message = init?.message ?? "";
    this.error = init?.error;
  }
}

class MessageEvent extends Event {
  constructor(type, init = {}) {
    super(type, init);
    this.data = init?.data ?? null;
  }
}

class EventTarget {
  #listeners = new Map();
  addEventListener(type, callback, options) {
    if (callback == null) return;
    if (typeof callback !== "function" && typeof callback !== "object") throw new TypeError("addEventListener: the listener must be a function or an object");
    const o = typeof options === "object" && options !== null ? options : { capture: !!options };
    if (o.signal?.aborted) return;
    type = String(type);
    const list = this.#listeners.get(type) ?? [];
    if (list.some((l) => l.callback === callback && l.capture === !!o.capture)) return;
    this.#listeners.set(type, list);
    const l = { callback, capture: !!o.capture, once: !!o.once, passive: !!o.passive, gone: false };
    list.push(l);
    o.signal?.addEventListener("abort", () => this.removeEventListener(type, callback, o));
  }
  removeEventListener(type, callback, options) {
    const capture = typeof options === "object" && options !== null ? !!options.capture : !!options;
    const list = this.#listeners.get(String(type));
    const i = list ? list.findIndex((l) => l.callback === callback && l.capture === capture) : -1;
    if (i >= 0) list.splice(i, 1)[0].gone = true;
  }
  dispatchEvent(event) {
    if (!(event instanceof Event)) throw new TypeError("dispatchEvent: an Event is required");
    const at = during(event);
    if (at.phase) throw new DOMException("the event is being dispatched already", "InvalidStateError");
    at.target = this;
    at.phase = Event.AT_TARGET;
    for (const l of [...(this.#listeners.get(event.type) ?? [])]) {
      if (l.gone) continue;
      if (at.stopNow) break;
      if (l.once) this.removeEventListener(event.type, l.callback, l);
      at.passive = l.passive;
      try {
        if (typeof l.callback === "function") l.callback.call(this, event);
        else l.callback.handleEvent(event);
      } catch (e) {
        report(e);
      }
    }
    at.phase = 0;
    at.stop = at.stopNow = at.passive = false;
    return !event.defaultPrevented;
  }
}

// handler adds an on-something property to a class.
function handler(proto, type) {
  const current = new WeakMap();
  Object.defineProperty(proto, "on" + type, {
    configurable: true,
    enumerable: true,
    get() { return current.get(this)?.fn ?? null; },
    set(fn) {
      const old = current.get(this);
      if (typeof fn !== "function") {
        current.delete(this);
        if (old) this.removeEventListener(type, old.call);
      } else if (old) {
        old.fn = fn;
      } else {
        const h = { fn, call(e) { return h.fn.call(this, e); } };
        current.set(this, h);
        this.addEventListener(type, h.call);
      }
    },
  });
}

const secret = Symbol("AbortSignal");

class AbortSignal extends EventTarget {
  #aborted = false;
  #reason = undefined;
  #followers = [];
  constructor(key) {
    if (key !== secret) throw new TypeError("AbortSignal: use AbortController, AbortSignal.abort, .timeout or .any");
    super();
  }
  get aborted() { return this.#aborted; }
  get reason() { return this.#reason; }
  throwIfAborted() { if (this.#aborted) throw this.#reason; }
  static {
    abort = (s, reason = new DOMException("This operation was aborted", "AbortError")) => {
      if (s.#aborted) return;
      s.#aborted = true;
      s.#reason = reason;
      const followers = s.#followers.filter((f) => !f.#aborted);
      s.#followers = [];
      s.dispatchEvent(new Event("abort"));
      for (const f of followers) abort(f, reason);
    };
  }
  static abort(reason) {
    const s = new AbortSignal(secret);
    abort(s, reason);
    return s;
  }
  static timeout(ms) {
    if (!(ms >= 0) || !Number.isFinite(+ms)) throw new TypeError("AbortSignal.timeout: the delay must be a number of milliseconds");
    const s = new AbortSignal(secret);
    setTimeout(() => abort(s, new DOMException("The operation timed out", "TimeoutError")), ms);
    return s;
  }
  static any(signals) {
    const s = new AbortSignal(secret);
    const all = [...signals];
    const first = all.find((x) => x.aborted);
    if (first) abort(s, first.reason);
    else for (const x of all) x.#followers.push(s);
    return s;
  }
}
handler(AbortSignal.prototype, "abort");
class AbortController {
  #signal = new AbortSignal(secret);
  get signal() { return this.#signal; }
  abort(reason) { abort(this.#signal, reason); }
}

for (const c of [Event, CustomEvent, EventTarget, AbortSignal, AbortController]) {
  Object.defineProperty(c.prototype, Symbol.toStringTag, { value: c.name, configurable: true });
}
define({ Event, CustomEvent, ErrorEvent, MessageEvent, EventTarget, AbortSignal, AbortController });
