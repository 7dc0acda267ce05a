/**
 * The module `skep`, as an agent in JavaScript or TypeScript imports it.
 *
 * The server has this module built in: nothing needs to be installed to run an agent. The npm package is for editors, for
 * type checkers and for tests.
 */

/** Plain settings of the agent, set when it was created. They are strings, and never secrets. */
export type Config = Readonly<Record<string, string>>;

/** What a call is given besides its input. */
export interface Context<C extends object = Config> {
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
   */
  agent<T = AnyAgent>(name: string): Remote<T>;
  /** Writes to the console, which shows in the agent's log and in the session's events. */
  readonly log: Log;
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
export class Agent<C extends object = Config> implements Context<C> {
  readonly config: C;
  readonly log: Log;
  emit(name: string, data?: unknown): void;
  agent<T = AnyAgent>(name: string): Remote<T>;
  waitUntil(promise: Promise<unknown>): void;

  /** Answers a message that was sent to a session. What it returns is the result of the run. */
  onMessage?(message: Message<never>, ctx: Context<C>): unknown;
  /** Answers an HTTP request to `/v1/agents/NAME/http/...`, whose URL it sees from the root on. */
  fetch?(request: Request, env: C, ctx: Context<C>): Response | Promise<Response>;
}

/** The shape of a default export that is an object instead of a class. */
export interface AgentObject<C extends object = Config> {
  fetch?(request: Request, env: C, ctx: Context<C>): Response | Promise<Response>;
  onMessage?(message: Message<never>, ctx: Context<C>): unknown;
}

/** Writes an event of the agent's own to the session's log. See {@link Context.emit}. */
export function emit(name: string, data?: unknown): void;

/** Settings of the agent. See {@link Context.config}. They can be read during a call only, not while the module loads. */
export const config: Config;

/** Writes to the console. See {@link Context.log}. */
export const log: Log;

/** Another agent of the same app. See {@link Context.agent}. */
export function agent<T = AnyAgent>(name: string): Remote<T>;

/** Calls a function of another agent, which must have been granted to this one. */
export function callAgent<O = unknown>(agent: string, functionName: string, input?: unknown): Promise<O>;

/** Resolves after so many milliseconds. */
export function sleep(ms: number): Promise<void>;

/** What a refused or failed request to Skep rejects with. */
export class SkepError extends Error {
  /** What can be done about it: `"denied"`, `"not_found"`, `"exhausted"`, `"failed"`, ... */
  readonly kind: string;
  /** Which limit was hit, when `kind` is `"exhausted"`. */
  readonly limit?: string;
}
