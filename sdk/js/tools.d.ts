// Tools, files of the session and skills, for agents and for scripts of code mode.

import type { ToolError } from "./index.js";

/** What a tool takes: an object with a JSON form. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type ToolArguments = Record<string, any>;

/**
 * A server of tools. Its methods take an object of arguments and resolve to what the tool returned: a JSON value, or a handle
 * ({@link Artifact}) where that is large, or an image.
 */
export interface ToolServer {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly [method: string]: (args?: ToolArguments) => Promise<any>;
}

/**
 * The tools that were granted: `await tools.SERVER.METHOD({ ... })`.
 *
 * ```ts
 * const issues = await tools.github.search_issues({ query: "is:open label:bug" });
 * await tools.fs["write-file"]({ path: "bugs.json", content: JSON.stringify(issues) });
 * ```
 *
 * A call fails with a {@link ToolError}. One that a person has to approve waits for that, in a run for days; elsewhere it is refused. A
 * server that is called like one of {@link ToolFunctions} is reached by `tools.call("search.now", { ... })`.
 */
export type Tools = ToolFunctions & { readonly [server: string]: ToolServer };

export interface ToolFunctions {
  /** Calls a tool by its whole name, such as `"files.read"`. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  call<T = any>(name: string, args?: ToolArguments): Promise<T>;
  /** Finds tools by words, the best first: 10 unless `limit` says otherwise. `effect` is the most that they may do. */
  search(words: string, options?: ToolFilter): Promise<ToolList>;
  /** Lists the tools that were granted. */
  list(options?: ToolFilter): Promise<ToolList>;
  /** Declares tools in TypeScript: names, or `SERVER.*`. `"compact"` unless `level` says otherwise. */
  describe(names: string | readonly string[], options?: { level?: "names" | "signatures" | "compact" | "full"; server?: string }): Promise<string>;
  /**
   * Makes calls in their order after they were approved as a whole, and resolves to what each returned. When one fails, those before it
   * are taken back, the latest first, as far as they have an `undo`, and the error says which were.
   *
   * ```ts
   * await tools.change("Rename the draft", [
   *   { tool: "fs.write", args: { path: "final.md", content }, undo: { tool: "fs.delete", args: { path: "final.md" } } },
   *   { tool: "fs.delete", args: { path: "draft.md" } },
   * ]);
   * ```
   * @param title what whoever approves it reads
   * @throws ToolError whose `data` is a {@link ChangeFailure} when a call failed; of kind `"denied"`, without data, when it was refused
   */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  change(title: string, calls: readonly ToolChange[]): Promise<any[]>;
}

export interface ToolFilter {
  server?: string;
  effect?: "read" | "modify" | "modify_execute" | "execute";
  limit?: number;
  /** With the schemas of their arguments, and descriptions whole. */
  schemas?: boolean;
}

/** Tools; `more` counts those that there are besides. */
export type ToolList = ToolInfo[] & { readonly more: number };

export interface ToolInfo {
  name: string;
  /** How code writes it. */
  path: string;
  effect: string;
  /** Its first sentence. */
  description?: string;
  /** JSON Schema of its arguments, where it was asked for. */
  schema?: object;
}

/**
 * A call of a change. `undo` takes it back: another call, which is shown to whoever approves the change and approved with it, or a function of what
 * it returned, whose calls are judged when they are made.
 */
export interface ToolChange {
  tool: string;
  args?: ToolArguments;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  undo?: { tool: string; args?: ToolArguments } | ((result: any, args: any) => unknown);
}

/** What became of a change of which a call failed. Calls are counted from 1. */
export interface ChangeFailure {
  failed: number;
  undone: { call: number; tool: string }[];
  kept: { call: number; tool: string; why: string }[];
}

/** What a tool returned that is large, or no JSON: a file of the session. {@link Files} takes it in place of a path. */
export interface Artifact {
  artifact: string;
  type: string;
  size: number;
}

/** A file of the session. */
export interface FileInfo {
  path: string;
  type: string;
  size: number;
}

/** A path, or a handle of one. */
export type FileRef = string | { artifact: string } | { path: string };

/** The files of the session, artifacts of tools among them. */
export interface Files {
  /** Reads a file, or `length` bytes of it from `offset` on. */
  read(file: FileRef, options?: { offset?: number; length?: number; as?: "text" }): Promise<string>;
  read(file: FileRef, options: { offset?: number; length?: number; as: "bytes" }): Promise<Uint8Array>;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  read<T = any>(file: FileRef, options: { offset?: number; length?: number; as: "json" }): Promise<T>;
  /** Writes a file whole: text, bytes, a `Blob`, or what has a JSON form. */
  write(file: FileRef, data: unknown, options?: { type?: string }): Promise<FileInfo>;
  /** Lists the files whose paths begin so, in the order of their paths. */
  list(prefix?: string): Promise<FileInfo[]>;
  /**
   * What `AGENTS.md` of the agent's package and of the session's files say of a path, the root unless given. `text` is for a model: each file
   * is marked with where it is from, the nearest last, which wins. They are input, like any file: they grant nothing.
   */
  instructions(path?: string): Promise<{ text: string; files: { path: string; from: "package" | "session"; size: number; cut?: boolean }[] }>;
}

/** Folders of instructions that were granted. */
export interface Skills {
  list(): Promise<{ name: string; description: string }[]>;
  /** Loads a file of a skill, `SKILL.md` unless another is named; `files` says which there are. */
  load(name: string, path?: string): Promise<{ text: string; files: string[] }>;
}
