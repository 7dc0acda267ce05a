// Math.random, seeded from the host in each cell on first use: cells are copies of one image and must not share a sequence.
import { Bytes } from "./primordials.js";
import { host, refuseWhileLoading } from "./host.js";

let a, b, c, d; // xoshiro128** (Blackman and Vigna)
let seeded = false;

function seed() {
  const s = new Bytes(16);
  host.random(s);
  const word = (i) => s[i] | (s[i + 1] << 8) | (s[i + 2] << 16) | (s[i + 3] << 24);
  a = word(0);
  b = word(4);
  c = word(8);
  d = word(12) | 1;
  seeded = true;
}

const mul = Math.imul;

function next() {
  const m = mul(b, 5);
  const r = mul((m << 7) | (m >>> 25), 9);
  const t = b << 9;
  c ^= a;
  d ^= b;
  b ^= c;
  a ^= d;
  c ^= t;
  d = (d << 11) | (d >>> 21);
  return r >>> 0;
}

Math.random = function random() {
  if (!seeded) {
    refuseWhileLoading("Math.random");
    seed();
  }
  return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
};
Object.defineProperty(Math, "random", { enumerable: false });
