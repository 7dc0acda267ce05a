// Files of the session, artifacts among them, and skills.
import { Bytes, TypeErrorClass, freeze, isBuffer, isView, joinBytes, list, parse, record, stringify, toBase64, toWellFormed, viewBytes } from "./primordials.js";
import { Blob, blobBytes } from "./blob.js";
import { decode, encode } from "./encoding.js";
import { json } from "./host.js";
import { query } from "./tools.js";

// pathOf returns a path, or that of a handle: { artifact } as tools return it, { path } as list and write do.
function pathOf(what, file) {
  const path = typeof file === "object" && file !== null ? file.artifact ?? file.path : file;
  if (typeof path !== "string" || path === "") throw new TypeErrorClass(`${what}: the first argument is the path of a file, or a handle such as { artifact: "artifacts/x/1.png" }`);
  return toWellFormed(path);
}

function number(what, name, v) {
  if (v === undefined) return undefined;
  if (typeof v !== "number" || !(v >= 0) || v % 1 !== 0) throw new TypeErrorClass(`${what}: ${name} is a whole number from 0 up`);
  return v;
}

const forms = record({ text: true, bytes: true, json: true });

const largestPart = 4 << 20; // that the host gives at once, as much as it gives unless it is told

// read returns a file, or length bytes of it from offset on: as text unless it is asked for as bytes or json.
async function read(file, options) {
  const as = options?.as ?? "text";
  if (forms[as] === undefined) throw new TypeErrorClass('files.read: as is "text", "bytes" or "json"');
  const path = pathOf("files.read", file);
  let offset = number("files.read", "offset", options?.offset) ?? 0;
  let left = number("files.read", "length", options?.length) ?? Infinity;
  const parts = list([]);
  let n = 0;
  while (left > 0) {
    const q = record({ path });
    if (offset > 0) q.offset = offset;
    if (left < largestPart) q.length = left;
    const { head, bytes } = await query("files.read", "file.read", () => stringify(q));
    const got = bytes?.length ?? 0;
    if (got > 0) parts[n++] = got > left ? bytes.subarray(0, left) : bytes;
    offset += got;
    left -= got;
    if (got === 0 || offset >= head.size) break;
  }
  const bytes = n === 1 ? parts[0] : n === 0 ? new Bytes() : joinBytes(parts);
  return as === "bytes" ? bytes : as === "text" ? decode(bytes) : parse(decode(bytes));
}

// contentOf returns what is written, and of which type it is.
function contentOf(data) {
  if (typeof data === "string") return [encode(toWellFormed(data)), "text/plain; charset=utf-8"];
  if (isBuffer(data) || isView(data)) return [viewBytes(data), "application/octet-stream"];
  if (data instanceof Blob) return [blobBytes(data), data.type || "application/octet-stream"];
  if (data === undefined || typeof data === "function" || typeof data === "symbol") throw new TypeErrorClass(`files.write: ${typeof data} cannot be written: give text, bytes, a Blob or what has a JSON form`);
  return [encode(json(data)), "application/json"];
}

const write = (file, data, options) => query("files.write", "file.put", () => {
  const [bytes, type] = contentOf(data);
  return stringify(record({ path: pathOf("files.write", file), type: options?.type === undefined ? type : `${options.type}`, body: toBase64(bytes) }));
});

// listFiles returns all files whose paths begin with prefix, in their order.
async function listFiles(prefix = "") {
  if (typeof prefix !== "string") throw new TypeErrorClass("files.list: the first argument is what the paths begin with");
  const all = [];
  for (let after; ; ) {
    const got = await query("files.list", "file.list", () => stringify(record({ prefix: toWellFormed(prefix), after, limit: 1000 })));
    for (let i = 0; i < got.files?.length; i++) all[all.length] = got.files[i];
    if (!got.after) return all;
    after = got.after;
  }
}

// instructions returns { text, files }: what the AGENTS.md of the agent's package and of the session's files say of a path, the nearest last.
const instructions = (path = "") => query("files.instructions", "file.instructions", () => {
  if (typeof path !== "string") throw new TypeErrorClass("files.instructions: the first argument is the path of a file or a folder");
  return stringify(record({ path: toWellFormed(path) }));
}, (out) => ({ text: out.text ?? "", files: out.files ?? [] }));

export const files = freeze(record({ read, write, list: listFiles, instructions }));

const named = (what, name) => {
  if (typeof name !== "string" || name === "") throw new TypeErrorClass(`${what}: the first argument is the name of a skill`);
  return name;
};

// load returns { text, files }: a file of a skill, SKILL.md unless another is named, and which others there are.
const load = (name, path) => query("skills.load", "skill.load", () => {
  const q = record({ name: named("skills.load", name) });
  if (path !== undefined) q.path = `${path}`;
  return stringify(q);
}, (out) => ({ text: out.text ?? "", files: out.files ?? [] }));

export const skills = freeze(record({
  list: () => query("skills.list", "skill.list", () => "", (out) => out.skills ?? []),
  load,
}));
