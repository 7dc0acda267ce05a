// Sandboxes, for runs of an agent that has one.

import type { FileRef } from "./tools.js";

/**
 * The sandbox of the agent: a container with a workspace, a shell and, where the agent's record names one, a command-line agent such as Claude Code.
 * `skep agent update NAME --environment ENVIRONMENT` gives an agent a sandbox, and that is the grant of it. Only runs have it.
 *
 * ```ts
 * export async function run({ url, task }: { url: string; task: string }) {
 *   const box = await sandbox.open();
 *   await box.repo({ url });
 *   const done = await box.work(task); // what the CLI asks meanwhile is decided by the policy, and by whoever approves
 *   const tests = await box.exec("make test");
 *   const { patch } = await box.diff();
 *   return { text: done.text, ok: tests.code === 0, patch };
 * }
 * ```
 */
export interface Sandboxes {
  /**
   * Opens the run's sandbox, and resolves when it is ready. A fresh one is made for each run, or the agent keeps one, which its runs have one after the
   * other. What it is made of stays the same for all runs of a session.
   * @throws SkepError whose message begins with `sandbox_capability_unavailable` when the server cannot give what the environment requires
   */
  open(): Promise<Sandbox>;
}

/** An open sandbox. Paths are absolute, or within the workspace. A call that is made again after a crash does nothing twice. */
export interface Sandbox {
  readonly id: string;
  /** `NAME@REVISION`. */
  readonly environment: string;
  readonly provider: string;
  /** `"cattle"`: of this run alone. `"pet"`: the agent keeps it. */
  readonly keep: "cattle" | "pet";
  /** Grows when the processes of one that is kept have begun anew. */
  readonly generation: number;
  /** Of one that is kept: another number when its files have begun anew, but for the folders `memory` and `sessions` of the workspace. */
  readonly kept?: number;
  /** The command-line agent that the agent's record names. */
  readonly cli?: string;
  /** The path of the workspace. */
  readonly workspace: string;

  /** Runs a program: words, or a line for `sh`. It resolves when the program has ended, or with `background` when it has begun. */
  exec(command: string | readonly string[], options?: SandboxExec): Promise<SandboxExit>;
  /** Lists what runs, and what `exec` has run. */
  processes(): Promise<SandboxProcess[]>;
  /** Sends a signal to a process and all that it has started: TERM, and then KILL, unless it is named. */
  signal(id: string, signal?: string): Promise<void>;
  /**
   * Makes a link by which a browser sees what listens at a port of the sandbox, from 1 to 65535. Whoever has the link can use it, for `lasts` milliseconds: an hour
   * unless given, a second to a day, and no longer than the sandbox is there, which is until the run ends unless the agent keeps it.
   *
   * ```ts
   * await box.exec("npm run dev", { background: true });
   * const { url } = await box.preview(5173);
   * ```
   */
  preview(port: number, options?: { lasts?: number }): Promise<{ url: string; expires: Date }>;

  /** Reads a file, or `length` bytes of it from `offset` on. */
  read(path: string, options?: { offset?: number; length?: number; as?: "text" }): Promise<string>;
  read(path: string, options: { offset?: number; length?: number; as: "bytes" }): Promise<Uint8Array>;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  read<T = any>(path: string, options: { offset?: number; length?: number; as: "json" }): Promise<T>;
  /** Writes a file whole, up to 4 MiB: text, bytes, or what has a JSON form. */
  write(path: string, data: unknown, options?: { mode?: number }): Promise<SandboxFile>;
  /** Lists a folder, the workspace unless it is named. `more` says that there are too many files. */
  list(path?: string, options?: { recursive?: boolean }): Promise<SandboxFile[] & { readonly more: boolean }>;
  /** Deletes a file, or with `recursive` a folder. What is not there is deleted. */
  delete(path: string, options?: { recursive?: boolean }): Promise<void>;
  /** Puts files of the session into the workspace, below `.attachments`, where they can only be read. No diff has them. */
  attach(files: FileRef | readonly FileRef[]): Promise<{ paths: string[]; images: string[] }>;

  /** Brings in what to work on: a URL, or a tar among the files of the session. Without either it is what is in the workspace. */
  repo(from?: string | SandboxRepo): Promise<{ commit: string; branch?: string; files: number }>;
  /**
   * Keeps what was changed since as a patch among the files of the session, or with `commit` a commit in a bundle of git; and beside it, in `usage`, what the
   * run has used until then.
   */
  diff(options?: { base?: string; commit?: string; branch?: string; author?: string }): Promise<SandboxDiff>;

  /**
   * Has the CLI do a turn, and sees to all that it asks: what it wants to be allowed is decided as calls of the tools `cli.run`, `cli.edit`, `cli.read`,
   * `cli.fetch` and `cli.tool` are, by the policy and by whoever approves; a person answers its questions. It ends the turn when it throws.
   */
  work(text: string, options?: SandboxPrompt & { onSession?: (session: { id: string; cli: string }) => void }): Promise<SandboxTurnEnd>;
  /** Begins a turn of the CLI, which {@link Sandbox.next} tells of. {@link Sandbox.work} does all of this. */
  prompt(text: string, options?: SandboxPrompt): Promise<SandboxTurn>;
  /** Resolves to the next events of a turn that need an answer, or are its end, after those up to `after`. */
  next(turn: SandboxTurn, after?: number): Promise<{ events: SandboxEvent[]; after: number }>;
  /** Resolves when what a CLI asks for is allowed, and rejects with a `ToolError` when it is not. */
  permit(asked: SandboxPermission): Promise<void>;
  /** Answers what a CLI has asked. It resolves to `false` when the CLI does not wait for it any more. */
  answer(id: string, answer: { allow: boolean; message?: string }): Promise<boolean>;
  /** Has a person answer a question of the CLI's. `refused` says why there is no answer. */
  ask(question: SandboxQuestion): Promise<{ answer?: unknown; refused?: string }>;
  /** Takes back what persons are asked on behalf of the CLI, by the ids of the permissions and questions. */
  withdraw(ids: string | readonly string[]): Promise<void>;
  /** Ends a turn where it is, and resolves when it has ended. */
  interrupt(turn: SandboxTurn | string): Promise<void>;

  /** Keeps paths of the workspace, all of it unless they are named, as a tar among the files of the session, with a manifest that has a digest of each. */
  checkpoint(paths?: string | readonly string[], options?: { file?: string }): Promise<SandboxCheckpoint>;
  /** Brings a checkpoint back, after all of it was compared with its manifest. */
  restore(checkpoint: SandboxCheckpoint | FileRef, options?: { dir?: string }): Promise<SandboxCheckpoint>;
}

export interface SandboxExec {
  /** The workspace unless given. */
  dir?: string;
  env?: Record<string, string>;
  stdin?: unknown;
  /** Milliseconds: 10 minutes unless given, none in the background. */
  timeout?: number;
  background?: boolean;
  /** What it writes goes into the session's log, too. */
  show?: boolean;
}

export interface SandboxExit {
  /** By which {@link Sandbox.signal} names it. */
  id: string;
  /** -1 when a signal has ended it. */
  code: number;
  signal?: string;
  /** Something was ended for want of memory. */
  oom?: boolean;
  timed_out?: boolean;
  /** What it has written, the end of it when that is long. */
  stdout: string;
  stderr: string;
  /** Bytes that are not in these. */
  dropped?: number;
  pid?: number;
}

export interface SandboxProcess {
  id: string;
  pid: number;
  command: string[];
  started: Date;
  ended?: boolean;
  code?: number;
}

export interface SandboxFile {
  path: string;
  type: "file" | "dir" | "link" | "other";
  size: number;
  mode: number;
  modified: Date;
  /** Of a link. */
  target?: string;
}

/** What to work on. */
export interface SandboxRepo {
  url?: string;
  /** Branch, tag or commit. */
  ref?: string;
  depth?: number;
  /** A tar, also with gzip, among the files of the session. */
  file?: FileRef;
}

export interface SandboxDiff {
  base: string;
  commit?: string;
  /** Path among the files of the session; not there when nothing was changed. */
  patch?: string;
  bundle?: string;
  /** Path of a file of JSON: the changed files, as here; not there when nothing was changed. */
  list?: string;
  /** Path of a file of JSON: calls, tokens and cost by model, as the ledger has them, and how long the run has had its sandbox. */
  usage?: string;
  bytes: number;
  /** How many files were changed; `changed` has as many of them as fit. */
  files: number;
  changed: SandboxChange[];
}

/** A changed file. Counts are lines, -1 for what is no text. */
export interface SandboxChange {
  path: string;
  op: "add" | "change" | "delete" | "rename";
  from?: string;
  added: number;
  removed: number;
}

/** What a turn begins with. The agent's record says the rest. */
export interface SandboxPrompt {
  model?: string;
  /** A session of the CLI's to go on with; a new one unless given. */
  resume?: string;
  dir?: string;
  /** Paths of images to show it. */
  images?: readonly string[];
}

export interface SandboxTurn {
  readonly turn: string;
  readonly generation?: number;
}

/** How a turn has ended. */
export interface SandboxTurnEnd {
  turn: string;
  status: "completed" | "interrupted" | "failed" | "refused" | "limit";
  /** The CLI's own word for it. */
  reason?: string;
  text: string;
  fault?: { kind: string; message: string; hint?: string };
  /** By what the CLI's session can be resumed. */
  session?: string;
  /** What the CLI believes to have used. The ledger counts at the gateway. */
  usage?: SandboxUsage;
}

export interface SandboxUsage {
  input: number;
  cacheRead: number;
  cacheWrite: number;
  output: number;
  reasoning: number;
}

export type SandboxEvent =
  | { type: "session.started"; data: { id: string; cli: string; version?: string; model?: string; tools?: string[]; resumed?: boolean } }
  | { type: "permission.asked"; data: SandboxPermission }
  | { type: "permission.withdrawn"; data: { id: string } }
  | { type: "question.asked"; data: SandboxQuestion }
  | { type: "turn.ended"; data: Pick<SandboxTurnEnd, "status" | "reason" | "text" | "fault">; session?: string; usage?: SandboxUsage };

/** What a CLI asks to be allowed. */
export interface SandboxPermission {
  id: string;
  /** The CLI's own name of the tool. */
  tool?: string;
  action?: "run" | "edit" | "read" | "fetch" | "tool";
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  args?: any;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  input?: any;
  reason?: string;
}

export interface SandboxQuestion {
  id: string;
  text: string;
  options?: string[];
  /** Of the answer, a flat object. */
  schema?: object;
}

export interface SandboxCheckpoint {
  /** Path among the files of the session. */
  file: string;
  digest: string;
  files: number;
  bytes: number;
}
