// Reads cells from standard input, one JSON object a line, runs them all at once, and prints what the client understood of each.
import { createInterface } from 'node:readline';

export const url = process.argv[2];
const upstream = process.argv[3];
export const key = process.env.SKEP_KEY;
export const prompt = process.env.PROMPT;
export const pixel = process.env.PIXEL;
export const system = 'Be brief.';
export const maxTokens = 12000;

export const tools = [
  { name: 'get_weather', description: 'Where it rains.', parameters: { type: 'object', properties: { city: { type: 'string', description: 'Where' }, days: { type: 'number' } } } },
  { name: 'get_time', description: 'What time it is.', parameters: { type: 'object', properties: { zone: { type: 'string', enum: ['CET', 'UTC'] } }, required: ['zone'] } },
];
export const result = (name) => `result of ${name}`;

// counting makes a fetch that counts requests.
export const counting = () => {
  const f = (...args) => {
    f.tries++;
    return fetch(...args);
  };
  f.tries = 0;
  return f;
};

// seen tells the provider, which waits for it before it fails, that something has come.
export const seen = (cell) => {
  if (['error', 'cut', 'eof'].includes(cell.kind)) fetch(`${upstream}/seen/${cell.cell}`);
};

export const run = async (perform) => {
  const all = [];
  for await (const line of createInterface({ input: process.stdin })) {
    const cell = JSON.parse(line);
    const out = { cell: cell.cell, steps: [], partial: '', empty: 0 };
    all.push((async () => {
      const count = counting();
      try {
        await perform(cell, out, count);
      } catch (e) {
        const last = e.lastError ?? e;
        const data = last.data?.error ?? last.error?.error ?? last.error;
        out.error = {
          name: last.constructor.name, status: last.status ?? last.statusCode ?? 0, type: String(data?.type ?? last.type ?? ''),
          message: [e.message, last.message, last.cause?.message, data?.message].filter(Boolean).join(' | '), tries: count.tries,
        };
      }
      console.log(JSON.stringify(out));
    })());
  }
  await Promise.all(all);
  process.exit(0);
};
