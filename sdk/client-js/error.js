/** What went wrong. kind says what can be done about it: it is one of a closed set, which index.d.ts lists. */
export class SkepError extends Error {
  constructor(kind, message, more = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.name = "SkepError";
    this.kind = kind;
    this.hint = more.hint;
    this.status = more.status;
    this.limit = more.limit;
    this.after = more.after; // milliseconds after which trying again makes sense
  }
}

export const unavailable = (message, cause) => new SkepError("unavailable", message, { cause });
export const cancelled = () => new SkepError("cancelled", "the caller gave it up");

/** rest resolves after ms, or rejects when signal is aborted. */
export const rest = (ms, signal) => new Promise((resolve, reject) => {
  if (signal?.aborted) return reject(cancelled());
  const stop = () => {
    clearTimeout(timer);
    reject(cancelled());
  };
  const timer = setTimeout(() => {
    signal?.removeEventListener("abort", stop);
    resolve();
  }, ms);
  signal?.addEventListener("abort", stop, { once: true });
});

/** backoff returns how long to wait before attempt n, from 0: longer each time, and never as long as others do. */
export const backoff = (n, min, max) => Math.min(max, min * 2 ** n) * (0.5 + Math.random() / 2);
