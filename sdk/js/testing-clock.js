// The clock of an agent under test: it moves when the test says so.

export class FakeClock {
  #waits = [];

  constructor(now) {
    this.now = now;
  }

  // at resolves when the clock has come to a time. An aborted wait never does.
  at(time, signal) {
    return new Promise((resolve) => {
      const wait = { time, resolve };
      this.#waits.push(wait);
      signal?.addEventListener("abort", () => {
        this.#waits = this.#waits.filter((w) => w !== wait);
      });
    });
  }

  // next returns when the first of the waits ends, or Infinity.
  next() {
    return Math.min(Infinity, ...this.#waits.map((w) => w.time));
  }

  // moveTo sets the clock and ends the waits that are over.
  moveTo(time) {
    this.now = Math.max(this.now, time);
    const over = this.#waits.filter((w) => w.time <= this.now).sort((a, b) => a.time - b.time);
    this.#waits = this.#waits.filter((w) => w.time > this.now);
    for (const w of over) {
      w.resolve();
    }
  }
}
