/**
 * The module `skep`, as an agent in JavaScript or TypeScript imports it.
 *
 * The server has this module built in: nothing needs to be installed to run an agent. The npm package is for editors, for
 * type checkers and for tests.
 */

import type {
  BroadcastOptions, Connection, Durable, Duration, OneWay, Schedule, ScheduleOptions, SQL, Step, Storage, When,
} from "./durable.js";
import type { ChatCall, ChatContent, ChatFunction, ChatHistory } from "./chat.js";
import type { ModelAnswer, ModelAsk, Models } from "./model.js";
import type { Sandboxes } from "./sandbox.js";
import type { Files, Skills, Tools } from "./tools.js";

export type * from "./chat.js";
export type * from "./durable.js";
export type * from "./model.js";
export type * from "./sandbox.js";
export type * from "./tools.js";

export {}; // nothing but what says so

declare global {
  interface RequestInit {
    /** A request whose body is a stream may say so, as other runtimes want it. */
    duplex?: "half";
  }
}

/** Plain settings of the agent, set when it was created. They are strings, and never secrets. */
export type Config = Readonly<Record<string, string>>;

/** What a call is given besides its input. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export interface Context<C extends object = Config, S = any> extends Durable<S> {
  /** Settings of the agent. */
  readonly config: C;
  /**
   * Writes an event of the agent's own to the session's log, from where it reaches every listener.
   * @param name what happened, such as `"progress"`
   * @param data any value with a JSON form
   */
  emit(name: string, data?: unknown): void;
  /**
   * Another agent of the same app, which must have been granted to this one. A method of the result calls the function of that
   * name: `await ctx.agent<typeof tools>("text-tool").stats("some text")`.
   *
   * With a key it is that agent's instance: `await ctx.agent<Room>("room", "lobby").say("hello")`. With `send` the call is a message:
   * it leaves when the turn has been stored, takes effect once, and nothing comes back.
   */
  agent<T = AnyAgent>(name: string, key?: string): Remote<T>;
  agent<T = AnyAgent>(name: string, key: string, options: { send: true }): OneWay<T>;
  /** Key-value state of the agent's own, when it was granted. */
  readonly kv: KV;
  /** Writes to the console, which shows in the agent's log and in the session's events. */
  readonly log: Log;
  /** Tools that were granted. */
  readonly tools: Tools;
  /** Files of the session. */
  readonly files: Files;
  /** Skills that were granted. */
  readonly skills: Skills;
  /** Models that were granted. */
  readonly model: Models;
  /** The sandbox of the agent, in a run. */
  readonly sandbox: Sandboxes;
  /** Lets the call go on until the promise settles, after its result has been sent. */
  waitUntil(promise: Promise<unknown>): void;
}

/** Writes a line to the console; the levels are those of `console`. */
export interface Log {
  (...values: unknown[]): void;
  trace(...values: unknown[]): void;
  debug(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}

/** A message of a session, as `onMessage` gets it. */
export interface Message<T = unknown> {
  /** `"user"`, or whatever the sender gave. */
  readonly role: string;
  /** What was said: text, or any JSON value. */
  readonly content: T;
}

/** An agent of which nothing is known: every function takes and returns anything. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyAgent = Record<string, (input?: any) => any>;

/** The functions of `T` as another agent sees them: of one argument, and returning a promise. */
export type Remote<T> = {
  [K in keyof T as T[K] extends (...args: never[]) => unknown ? K : never]: T[K] extends (
    input: infer I,
    ...rest: never[]
  ) => infer O
    ? unknown extends I
      ? (input?: unknown) => Promise<Awaited<O>>
      : (input: I) => Promise<Awaited<O>>
    : never;
};

/** What {@link Agent} and {@link ChatAgent} have in common. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
declare class AgentBase<C extends object = Config, S = any> {
  readonly config: C;
  readonly kv: KV;
  readonly log: Log;
  readonly files: Files;
  readonly skills: Skills;
  readonly sandbox: Sandboxes;
  emit(name: string, data?: unknown): void;
  agent<T = AnyAgent>(name: string, key?: string): Remote<T>;
  agent<T = AnyAgent>(name: string, key: string, options: { send: true }): OneWay<T>;
  waitUntil(promise: Promise<unknown>): void;

  readonly key: string | undefined;
  readonly name: string;
  readonly runId: string | undefined;
  readonly sessionId: string | undefined;
  readonly storage: Storage;
  readonly sql: SQL;
  readonly state: S;
  setState(next: S): void;
  schedule(when: When, method?: keyof this & string, payload?: unknown, options?: ScheduleOptions): Promise<Schedule>;
  scheduleEvery(seconds: number, method?: keyof this & string, payload?: unknown, options?: ScheduleOptions): Promise<Schedule>;
  listSchedules(): Promise<Schedule[]>;
  getSchedule(name: string): Promise<Schedule | undefined>;
  cancelSchedule(name: string): Promise<boolean>;
  setAlarm(when: Date | number): Promise<void>;
  getAlarm(): Promise<number | null>;
  deleteAlarm(): Promise<void>;
  readonly step: Step;
  sleep(duration: Duration): Promise<void>;
  sleepUntil(when: Date | number): Promise<void>;
  waitForEvent<T = unknown>(type: string, options?: { timeout?: Duration }): Promise<T>;
  outside<T>(work: () => Promise<T> | T): Promise<T>;
  /** {@link Durable.run}, without its types: agents have methods of that name. The `run` that is imported has them. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  run(functionName: any, input?: any, ...rest: any[]): any;
  child<T = AnyAgent>(key: string): Remote<T>;
  child<T = AnyAgent>(key: string, options: { send: true }): OneWay<T>;
  child<T = AnyAgent>(agent: string, key: string): Remote<T>;
  child<T = AnyAgent>(agent: string, key: string, options: { send: true }): OneWay<T>;
  deleteChild(key: string): Promise<void>;
  deleteChild(agent: string, key: string): Promise<void>;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  connections<A = any>(tag?: string): Promise<Connection<A>[]>;
  broadcast(data: unknown, options?: BroadcastOptions): Promise<void>;

  /** Answers a message that was sent to a session. What it returns is the result of the run. */
  onMessage?(message: Message<never>, ctx: Context<C, S>): unknown;
  /** Answers an HTTP request to `/v1/agents/NAME/http/...`, whose URL it sees from the root on. */
  fetch?(request: Request, env: C, ctx: Context<C, S>): Response | Promise<Response>;

  /** What {@link Durable.state} is until it is set: a value, or a method that returns it. */
  initialState?: S | (() => S);
  /**
   * Is asked before each change of the state, and refuses it by throwing. It is not async.
   * @param source `"server"` for the agent's own `setState`, else the id of the connection that the change came by
   */
  validateStateChange?(next: S, source: string): void;
  /** Is told of each change of the state, after it was made. */
  onStateChanged?(state: S, source: string): unknown;
  /** Is called before the first turn of an instance, and stored with it. */
  onStart?(): unknown;
  /** Is called before the first turn of an instance on other code. `from` is the digest of the code before. */
  onUpgrade?(from: string): unknown;
  /** Is called by {@link Durable.setAlarm}, and by schedules that name no method. It is called again when it throws. */
  onAlarm?(payload: never, ctx: Context<C, S>): unknown;
  /** A client has connected. Throwing refuses it. */
  onConnect?(connection: Connection, event: { request: { url: string; headers: Headers } }, ctx: Context<C, S>): unknown;
  /** A client has sent a frame: text, or bytes. */
  onSocketMessage?(connection: Connection, data: string | Uint8Array, ctx: Context<C, S>): unknown;
  /** A connection has closed. 1005 means that no code was given. Nothing can be sent on it any more. */
  onClose?(connection: Connection, code: number, reason: string, ctx: Context<C, S>): unknown;
}

/**
 * The base class of an agent with a default export. Every public method that is not a handler can be called by its name.
 *
 * ```ts
 * import { Agent, type Message } from "skep";
 *
 * export default class Greeter extends Agent {
 *   greet(input: { name: string }) {
 *     return { text: `Hello, ${input.name}!` };
 *   }
 *   async onMessage(message: Message<string>) {
 *     this.emit("thinking");
 *     return `You said: ${message.content}`;
 *   }
 * }
 * ```
 *
 * A method gets the call's input and, after it, a {@link Context} with the same members as `this`. A fresh object is made for
 * every call: what a method leaves in `this` or in a module's variables is gone with the call.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export class Agent<C extends object = Config, S = any> extends AgentBase<C, S> implements Context<C, S> {
  readonly tools: Tools;
  readonly model: Models;
}

/**
 * An agent that chats: it answers each message of a session by a model, which may call tools, and keeps what was said.
 *
 * ```ts
 * import { ChatAgent } from "skep";
 *
 * export default class Assistant extends ChatAgent {
 *   model = "@main";
 *   instructions = "You help with notes.";
 *   tools = ["notes.*"];
 * }
 * ```
 *
 * Each session has a history of its own, in the instance's storage. What the model says is written into the session's log while it comes. Calls of tools go by
 * grants and policy: one that a person has to approve holds the run. `tools` and `model` are settings here; the functions of these names are what
 * `import { model, tools } from "skep"` brings.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export class ChatAgent<C extends object = Config, S = any> extends AgentBase<C, S> {
  /** The model that answers: `"@main"` unless set. */
  model: string;
  /** What the model shall keep to. What `AGENTS.md` of the package and of the session say comes after it. */
  instructions: string | (() => string | Promise<string>);
  /** Which tools the model may call, of those that were granted: names, or `"SERVER.*"`. None unless set. */
  tools: readonly string[];
  /**
   * Whether the model writes code that calls {@link tools}, and is told of `execute`, `search` and `describe` in place of them all. Each script is a run of its
   * own, for which the policy and approvals hold as for others.
   */
  code: boolean;
  /** Functions of the agent's own that the model may call. */
  static functions?: Readonly<Record<string, ChatFunction>>;
  /** The same, for functions that depend on the call. */
  functions?: Readonly<Record<string, ChatFunction>> | (() => Readonly<Record<string, ChatFunction>> | Promise<Readonly<Record<string, ChatFunction>>>);
  /** How often the model is asked to answer one message: 20 unless set. The last time it may call no tools. */
  maxSteps: number;
  /** How many tokens the model takes: 100,000 unless set. */
  contextTokens: number;
  /** From when on the older part of the conversation is summed up: a share of `contextTokens`, 0.8 unless set, or tokens when it is above 1. */
  compactAt: number;
  /** The model that sums up, if it was granted: `"@summarizer"` unless set. Else `model` does. */
  summarizer: string;
  /** How many characters of a tool's result the model is told: 16,000 unless set. */
  maxResult: number;
  /** What else the model is asked with, such as `{ temperature: 0, reasoning: "low" }`. */
  options: Omit<ModelAsk, "model" | "system" | "messages" | "prompt" | "tools" | "choice" | "show">;

  /** Answers a message. */
  onMessage(message: Message<ChatContent>): Promise<string | undefined>;
  /** Returns what was said in a session, that of the call unless it is named, from message `after` on. Clients may call it. */
  history(options?: { session?: string; after?: number; limit?: number }): Promise<ChatHistory>;
  /** Is told of the answer that ends a turn. A text that it returns is the reply instead. */
  onReply?(answer: ModelAnswer): unknown;
  /** Is asked before a call is made. What it returns, unless that is `undefined`, is the result instead; what it throws is told to the model. */
  onToolCall?(call: ChatCall): unknown;
  /** Returns the reply when the model could not answer. Throwing fails the run. The session can go on either way. */
  onError(error: unknown): string | Promise<string>;
}

/** The shape of a default export that is an object instead of a class. It has the members of {@link Context} as `this`. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export interface AgentObject<C extends object = Config, S = any> {
  fetch?(request: Request, env: C, ctx: Context<C, S>): Response | Promise<Response>;
  onMessage?(message: Message<never>, ctx: Context<C, S>): unknown;
  initialState?: S | (() => S);
  validateStateChange?(next: S, source: string): void;
  onStateChanged?(state: S, source: string): unknown;
  onStart?(): unknown;
  onUpgrade?(from: string): unknown;
  onAlarm?(payload: never, ctx: Context<C, S>): unknown;
  onConnect?(connection: Connection, event: { request: { url: string; headers: Headers } }, ctx: Context<C, S>): unknown;
  onSocketMessage?(connection: Connection, data: string | Uint8Array, ctx: Context<C, S>): unknown;
  onClose?(connection: Connection, code: number, reason: string, ctx: Context<C, S>): unknown;
}

/** Writes an event of the agent's own to the session's log. See {@link Context.emit}. */
export function emit(name: string, data?: unknown): void;

/** Settings of the agent. See {@link Context.config}. They can be read during a call only, not while the module loads. */
export const config: Config;

/** Writes to the console. See {@link Context.log}. */
export const log: Log;

/**
 * Key-value state of the agent's own, when it was granted: `skep agent update NAME --grant-state`. All cells of the agent share it,
 * nobody else sees it, and it is gone when the agent is deleted. What was set is durable before the promise resolves.
 *
 * Keys are any text of up to 1 KiB, and sort by their UTF-8 bytes. Values are up to 128 KiB: whatever has a JSON form, text, or
 * bytes, which come back as a `Uint8Array`.
 *
 * ```ts
 * const visits = (await kv.get<number>("visits")) ?? 0;
 * await kv.set("visits", visits + 1); // two calls at once may count one visit; see compareAndSet
 * ```
 */
export interface KV {
  /** The value of a key, or `undefined` when it is not there. */
  get<T = unknown>(key: string): Promise<T | undefined>;
  /** The values of up to 128 keys, in their order and as of one moment. */
  getMany<T = unknown>(keys: readonly string[]): Promise<(T | undefined)[]>;
  /** A key with its version, or `undefined` when it is not there. */
  getEntry<T = unknown>(key: string): Promise<KVEntry<T> | undefined>;
  /**
   * Sets a key and returns its new version.
   * @throws SkepError of kind `"conflict"` when the key has another version than `ifVersion`, where 0 means that it must not be
   * there; of kind `"exhausted"` when the state would be larger than what was granted
   */
  set(key: string, value: unknown, options?: { ifVersion?: number }): Promise<number>;
  /** Deletes a key. One that is not there is no error, unless `ifVersion` says that it should be. */
  delete(key: string, options?: { ifVersion?: number }): Promise<void>;
  /**
   * Sets a key if it has that version, where 0 means that it must not be there, and returns the new one. `undefined` means that
   * somebody else was quicker: read the key again.
   *
   * ```ts
   * let e, version;
   * do {
   *   e = await kv.getEntry<number>("visits");
   *   version = await kv.compareAndSet("visits", e?.version ?? 0, (e?.value ?? 0) + 1);
   * } while (version === undefined);
   * ```
   */
  compareAndSet(key: string, version: number, value: unknown): Promise<number | undefined>;
  /**
   * Makes up to 128 edits of up to 1 MiB at once, or none of them, and returns the version of the keys that were set. Each
   * `ifVersion` is held against the state as it was before; one that does not hold rejects with a `SkepError` of kind `"conflict"`.
   */
  batch(edits: readonly KVEdit[]): Promise<number>;
  /** One page of entries in the order of keys: up to `limit`, 100 unless given and at most 1000, or fewer when they are large. */
  list<T = unknown>(options?: KVRange): Promise<{ entries: KVEntry<T>[]; after?: string }>;
  /** All entries in the order of keys, or the first `limit` of them, read page by page. */
  entries<T = unknown>(options?: KVRange): AsyncGenerator<KVEntry<T>, void, undefined>;
}

/** A key that is there. Versions rise with each commit to the state and are never used again. */
export interface KVEntry<T = unknown> {
  readonly key: string;
  readonly value: T;
  readonly version: number;
}

/** One edit of a batch; a check changes nothing. */
export type KVEdit =
  | { op: "set"; key: string; value: unknown; ifVersion?: number }
  | { op: "delete"; key: string; ifVersion?: number }
  | { op: "check"; key: string; ifVersion: number };

/** Which keys are meant: all that are given must hold. */
export interface KVRange {
  prefix?: string;
  /** The first key. */
  start?: string;
  /** The key before which the range ends. */
  end?: string;
  /** From the last key to the first. */
  reverse?: boolean;
  /** What the page before returned as `after`. */
  after?: string;
  limit?: number;
}

/** Key-value state of the agent's own. See {@link KV}. */
export const kv: KV;

/** Another agent of the same app, or an instance of it. See {@link Context.agent}. */
export function agent<T = AnyAgent>(name: string, key?: string): Remote<T>;
export function agent<T = AnyAgent>(name: string, key: string, options: { send: true }): OneWay<T>;

/** Tools that were granted. See {@link Tools}. */
export const tools: Tools;
/** Files of the session. See {@link Files}. */
export const files: Files;
/** Skills that were granted. See {@link Skills}. */
export const skills: Skills;
/** Models that were granted. See {@link Models}. */
export const model: Models;
/** The sandbox of the agent. See {@link Sandboxes}. */
export const sandbox: Sandboxes;

/** Keys of an instance's own, and SQL. See {@link Durable.storage}. */
export const storage: Storage;
/** SQL over an instance's own tables. See {@link SQL}. */
export const sql: SQL;
/** Does a part of a run under a name. See {@link Step}. */
export const step: Step;
/** See {@link Durable.waitForEvent}. */
export const waitForEvent: Durable["waitForEvent"];
/** See {@link Durable.outside}. */
export const outside: Durable["outside"];
/** See {@link Durable.run}. */
export const run: Durable["run"];
/** See {@link Durable.child}. */
export const child: Durable["child"];
/** See {@link Durable.deleteChild}. */
export const deleteChild: Durable["deleteChild"];
/** See {@link Durable.schedule}. */
export const schedule: Durable["schedule"];
/** See {@link Durable.scheduleEvery}. */
export const scheduleEvery: Durable["scheduleEvery"];
/** See {@link Durable.listSchedules}. */
export const listSchedules: Durable["listSchedules"];
/** See {@link Durable.getSchedule}. */
export const getSchedule: Durable["getSchedule"];
/** See {@link Durable.cancelSchedule}. */
export const cancelSchedule: Durable["cancelSchedule"];
/** See {@link Durable.setAlarm}. */
export const setAlarm: Durable["setAlarm"];
/** See {@link Durable.getAlarm}. */
export const getAlarm: Durable["getAlarm"];
/** See {@link Durable.deleteAlarm}. */
export const deleteAlarm: Durable["deleteAlarm"];
/** See {@link Durable.connections}. */
export const connections: Durable["connections"];
/** See {@link Durable.broadcast}. */
export const broadcast: Durable["broadcast"];

/** Calls a function of another agent, which must have been granted to this one. */
export function callAgent<O = unknown>(agent: string, functionName: string, input?: unknown): Promise<O>;

/**
 * The placeholder of a secret: `{{secret:NAME}}`. Write it where the secret belongs in a request: as a header's value or in it, as
 * a query parameter, as a form field or as a string in a JSON body. The host puts the value in on the way out, where the
 * secret is bound to and was granted, and nowhere else; the agent never sees it.
 *
 * ```ts
 * await fetch("https://api.github.com/user", { headers: { authorization: `Bearer ${secret("github")}` } });
 * ```
 * @param name of the secret, as `skep secret set` was told it
 * @throws TypeError when no secret can have that name. Whether there is one shows when the request is made.
 */
export function secret(name: string): string;

/** Resolves after so long. In a run of an instance that may be years; elsewhere it is up to 24 days. */
export function sleep(duration: Duration): Promise<void>;
/** Resolves at a time: a `Date`, or milliseconds since 1970. */
export function sleepUntil(when: Date | number): Promise<void>;

/** An error after which a step is not tried again. */
export class NonRetryableError extends Error {
  constructor(message: string, name?: string);
}

/** What a refused or failed request to Skep rejects with. A failed `fetch` rejects with a `TypeError` that has one as its `cause`. */
export class SkepError extends Error {
  constructor(kind: string, message: string, limit?: string, hint?: string);
  /** What can be done about it: `"denied"`, `"not_found"`, `"exhausted"`, `"failed"`, ... */
  readonly kind: string;
  /** Which limit was hit, when `kind` is `"exhausted"`. */
  readonly limit?: string;
  /** What to do about it, in a sentence. */
  readonly hint?: string;
}

/**
 * What a call of a tool fails with: of kind `"denied"` when policy or a person refused it, of kind `"failed"` for an error of the tool's own.
 * Its stack says where it was called.
 */
export class ToolError extends SkepError {
  constructor(tool: string, kind: string, message: string, more?: { limit?: string; hint?: string; data?: unknown });
  readonly name: "ToolError";
  /** The tool's name; empty when several calls were refused together. */
  readonly tool: string;
  /** Of a change, what became of its calls: a {@link ChangeFailure}. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly data?: any;
}
