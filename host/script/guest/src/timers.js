// setTimeout and setInterval. The timers wait here, in a heap ordered by due time; the host knows only when the first is due.
import { RangeErrorClass, Table, apply, dateNow } from "./primordials.js";
import { define, host, refuseWhileLoading } from "./host.js";

const heap = Object.setPrototypeOf([], null);
let size = 0;
let lastID = 0;
const live = new Table(); // id -> timer

const before = (a, b) => a.due < b.due || (a.due === b.due && a.seq < b.seq);

function push(t) {
  let i = size++;
  while (i > 0) {
    const up = (i - 1) >> 1;
    if (!before(t, heap[up])) break;
    heap[i] = heap[up];
    i = up;
  }
  heap[i] = t;
}

function pop() {
  const top = heap[0];
  const t = heap[--size];
  heap[size] = undefined;
  if (size > 0) {
    let i = 0;
    for (;;) {
      let k = 2 * i + 1;
      if (k >= size) break;
      if (k + 1 < size && before(heap[k + 1], heap[k])) k++;
      if (!before(heap[k], t)) break;
      heap[i] = heap[k];
      i = k;
    }
    heap[i] = t;
  }
  return top;
}

let seq = 0;
let armed = -1; // due time the host was told, -1 for none

function arm(now) {
  while (size > 0 && heap[0].dead) pop();
  if (size === 0) {
    if (armed !== -1) {
      armed = -1;
      host.alarm(-1);
    }
  } else if (heap[0].due !== armed) {
    armed = heap[0].due;
    host.alarm(armed > now ? armed - now : 0);
  }
}

// ring runs the timer that is due first. The host calls it when the time it was told has passed.
export function ring() {
  armed = -1;
  while (size > 0 && heap[0].dead) pop();
  if (size === 0) return;
  const t = pop();
  const now = t.due > dateNow() ? t.due : dateNow();
  if (t.every < 0) {
    live.delete(t.id);
  } else {
    t.due = now + t.every;
    t.seq = ++seq;
    push(t);
  }
  arm(now);
  apply(t.fn, globalThis, t.args);
}

function start(what, fn, ms, args, repeat) {
  refuseWhileLoading(what);
  if (typeof fn !== "function") throw new TypeError(`${what}: the first argument must be a function`);
  ms = +ms;
  if (!(ms > 0)) ms = 0;
  if (ms > 2147483647) throw new RangeErrorClass(`${what}: a delay is at most 2147483647 milliseconds`);
  const now = dateNow();
  const t = { __proto__: null, id: ++lastID, due: now + ms, seq: ++seq, fn, args, every: repeat ? ms || 1 : -1, dead: false };
  live.set(t.id, t);
  push(t);
  arm(now);
  return t.id;
}

function clear(id) {
  const t = live.take(+id);
  if (!t) return;
  t.dead = true;
  t.fn = t.args = undefined;
  arm(dateNow());
}

define({
  setTimeout: function setTimeout(fn, ms, ...args) { return start("setTimeout", fn, ms, args, false); },
  setInterval: function setInterval(fn, ms, ...args) { return start("setInterval", fn, ms, args, true); },
  setImmediate: function setImmediate(fn, ...args) { return start("setImmediate", fn, 0, args, false); },
  clearTimeout: function clearTimeout(id) { clear(id); },
  clearInterval: function clearInterval(id) { clear(id); },
  clearImmediate: function clearImmediate(id) { clear(id); },
});
