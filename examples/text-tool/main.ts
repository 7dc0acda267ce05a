// A tool for text: plain functions, each called by its name.

/** How long a text is, how long it takes to read, and which longer words it repeats. */
export function stats(text: string) {
  const words = wordsOf(text);
  const counts = new Map<string, number>();
  for (const word of words) {
    const key = word.toLowerCase();
    if (key.length > 3) {
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  }
  const top = [...counts]
    .filter(([, count]) => count > 1)
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .slice(0, 5);
  return {
    characters: [...text].length,
    words: words.length,
    sentences: text.split(/[.!?]+(?:\s|$)/).filter((s) => s.trim() !== "").length,
    readingSeconds: Math.ceil((words.length / 230) * 60),
    top: top.map(([word, count]) => ({ word, count })),
  };
}

/** The links, mail addresses, dates and hashtags in a text, each once, in order of appearance. */
export function extract(text: string) {
  const all = (re: RegExp) => [...new Set(Array.from(text.matchAll(re), (m) => m[0].replace(/[.,;:!?)\]]+$/, "")))];
  return {
    links: all(/https?:\/\/[^\s<>"]+/g).filter((link) => URL.canParse(link)),
    mails: all(/[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g),
    dates: all(/\b\d{4}-\d{2}-\d{2}\b/g),
    tags: all(/(?<![\w&])#[\p{L}\p{N}_]+/gu),
  };
}

interface Replace {
  text: string;
  pattern: string;
  flags?: string;
  with: string;
}

/** Replaces every match of a regular expression. */
export function replace(input: Replace) {
  const re = new RegExp(input.pattern, input.flags ?? "g");
  return input.text.replace(re, input.with);
}

/** A text as part of a URL or file name. */
export function slug(text: string) {
  return text
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "");
}

/** Breaks a text into lines of at most `width` characters, between words. */
export function wrap(input: { text: string; width?: number }) {
  const width = input.width ?? 72;
  const lines: string[] = [];
  let line = "";
  for (const word of input.text.split(/\s+/).filter(Boolean)) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line].join("\n");
}

function wordsOf(text: string): string[] {
  return text.match(/\p{L}[\p{L}\p{N}]*(?:['’-][\p{L}\p{N}]+)*/gu) ?? [];
}
