import type { AnyAgent, Duration, KV, ModelMessage, ModelTool, SQLValue, ToolArguments } from "./index.js";

/**
 * A double of Skep: it calls an agent's functions in this process and records what they did. It is one instance of the agent, whose
 * storage, state, schedules and connections last over the calls.
 */
export class FakeHost {
  constructor(options?: {
    /** Settings of the agent. */
    config?: Record<string, string>;
    /** Other agents that it may call, by name: an object, or for instances a function of the key that returns one. */
    agents?: Record<string, AnyAgent | ((key: string) => AnyAgent)>;
    /**
     * Answers the agent's `fetch`, in place of the network: without it every request is refused, as it is where nothing is granted.
     * Placeholders of secrets stand in the request as the agent wrote them.
     */
    fetch?: (request: Request) => Response | Promise<Response>;
    /** What its `kv` has at first, by key. */
    state?: Record<string, unknown>;
    /** The instance's key, `"test"` unless given. */
    key?: string;
    /** The agent's name, `"agent"` unless given. */
    name?: string;
    /** What the instance's `storage` has at first, by key. */
    storage?: Record<string, unknown>;
    /** What its `state` is at first. */
    shared?: unknown;
    /** Answers SQL with rows, such as by the SQLite of your runtime. Without it SQL is refused. */
    sql?: (query: string, params: SQLValue[]) => Record<string, unknown>[] | { rows: Record<string, unknown>[]; columns?: string[]; changes?: number };
    /**
     * The tools that it may call, by name: `{ "fs.read": async ({ path }) => ... }`. What one throws, the agent gets as a `ToolError`: a
     * `ToolError` or a `SkepError` with its kind, anything else of kind `"failed"`. Others are refused, as they are where nothing is granted.
     */
    tools?: Record<string, (args: any) => unknown>;
    /** Answers a question whether these calls may be made: one, or those of a change, with its title. Without it all may. */
    approve?: (question: { title?: string; calls: { tool: string; args: ToolArguments }[] }) => boolean | Promise<boolean>;
    /** Files of the session at first, by path. */
    files?: Record<string, string | Uint8Array>;
    /** Skills that it may load, by name: the text of `SKILL.md`, or texts by path. */
    skills?: Record<string, string | Record<string, string>>;
    /** What comes of a script that an agent with `code` has run. */
    code?: (text: string, tools: readonly string[]) => unknown;
    /**
     * What models answer: a list of replies, one after the other, or a function of what they are asked. A reply is a text, or an object; an
     * error is thrown. Without it every model is refused, as it is where nothing is granted.
     */
    models?: readonly FakeReply[] | ((ask: FakeAsk) => FakeReply | Promise<FakeReply>);
    /** The sandbox of the agent. Without it, it has none. */
    sandbox?: FakeBox;
    /** What the clock shows at first: 1 January 2026 unless given. */
    now?: Date | number;
  });
  /** The agent's `kv`. No grant bounds it. */
  readonly kv: KV;
  /** The instance's `storage`. */
  readonly storage: KV;
  /** The state that clients see, or `undefined` before it was set. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly shared: any;
  /** What was emitted, oldest first. */
  readonly events: { name: string; data?: unknown }[];
  /** The attempts of steps that have ended, oldest first. */
  readonly steps: { name: string; attempt: number; error?: string; rollback?: boolean }[];
  /** The messages that were sent to instances. */
  readonly sent: { agent: string; key?: string; method: string; input?: unknown }[];
  /** The calls of tools that were made, oldest first, without those that were refused. */
  readonly toolCalls: { tool: string; args: ToolArguments }[];
  /** What models were asked, oldest first. */
  readonly modelCalls: FakeAsk[];
  /** The changes that were approved, oldest first. */
  readonly changes: { title: string; calls: { tool: string; args: ToolArguments }[] }[];
  /** Files of the session, by path. */
  readonly files: Map<string, { type: string; body: Uint8Array }>;
  /** What the sandbox has: its files by path, the programs that were run, and what its CLI was told. */
  readonly sandbox: { readonly files: Map<string, Uint8Array>; readonly ran: string[][]; readonly prompts: { text: string; resume?: string; images?: string[] }[] };
  /** The instances of its own that it deleted. */
  readonly deleted: { agent: string; key: string }[];
  /** What the clock shows, in milliseconds since 1970. It moves by {@link advance} only; `Date` does not know of it. */
  readonly now: number;

  /**
   * Calls a function of an agent, as a turn: when it throws, what it changed is undone and what it sent is not sent.
   * @param agent the imported module (`import * as agent from "./agent.ts"`), its class, or its object
   */
  call<O = unknown>(agent: unknown, functionName: string, input?: unknown): Promise<O>;
  /** Begins a run of a function. Its waits are by the clock of the test. */
  start<O = unknown>(agent: unknown, functionName: string, input?: unknown): { id: string; result: Promise<O> };
  /** Moves the clock: waits end and schedules ring in their order, but for those of cron lines. */
  advance(time: Duration): Promise<void>;
  /** Makes the call of a schedule now. */
  ring(name: string): Promise<unknown>;
  /** Sends an event to the run that waits for that type, or to the next that does. */
  deliver(type: string, data?: unknown): Promise<void>;
  /** Connects a client: `onConnect` has run when the promise resolves. */
  connect(
    agent: unknown,
    options?: { id?: string; url?: string; headers?: Record<string, string>; tags?: string[] },
  ): Promise<FakeConnection>;
}

/** The sandbox of a test. */
export interface FakeBox {
  keep?: "cattle" | "pet";
  /** What is in the workspace at first, by path. */
  files?: Record<string, string | Uint8Array>;
  /** Runs a program: a text is what it has written. */
  exec?: (
    command: string | string[],
    options: { dir?: string; env?: Record<string, string>; files: Map<string, Uint8Array> },
  ) => string | { code?: number; stdout?: string; stderr?: string } | Promise<string | { code?: number; stdout?: string; stderr?: string }>;
  /** Does what the CLI is told, and returns what it says. What it throws ends the turn as failed. */
  cli?: (text: string, cli: FakeCLI, prompt: { text: string; resume?: string; images?: string[] }) => string | void | Promise<string | void>;
  /** Answers questions of the CLI. */
  answer?: (question: { text: string; options?: string[] }) => unknown;
}

/** What the CLI of a test can do. */
export interface FakeCLI {
  readonly files: Map<string, Uint8Array>;
  /** Asks to be allowed something, which `approve` of the test answers: resolves to why it is not, or to nothing. */
  permit(action: "run" | "edit" | "read" | "fetch" | "tool", args?: object): Promise<string | undefined>;
  /** Writes a file if it is allowed to: resolves to why it is not, or to nothing. */
  write(path: string, data: string | Uint8Array): Promise<string | undefined>;
  ask(text: string, options?: string[]): Promise<string | undefined>;
}

/** What a model of a test says. */
export type FakeReply =
  | string
  | Error
  | {
      text?: string;
      reasoning?: string;
      refusal?: string;
      /** Calls of tools that it asks for. */
      calls?: { name: string; args?: ToolArguments; id?: string }[];
      stop?: "end" | "length" | "tool" | "filter" | "pause" | "unknown";
      usage?: { input?: number; output?: number };
    };

/** What a model of a test is asked, as it is sent. */
export interface FakeAsk {
  model: string;
  system?: string;
  messages: ModelMessage[];
  tools?: (ModelTool & { name: string })[];
  choice?: string;
  max_tokens?: number;
  show?: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  [field: string]: any;
}

/** A client's end of a connection. */
export interface FakeConnection {
  readonly id: string;
  readonly tags: string[];
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly attachment: any;
  /** What the agent has sent, oldest first. */
  readonly frames: (string | Uint8Array)[];
  /** How it was closed, by either end. */
  readonly closed?: { code: number; reason: string };
  /** Sends a frame: `onSocketMessage` has run when the promise resolves. */
  send(data: string | Uint8Array): Promise<void>;
  /** Changes the state as a client does. */
  setState(next: unknown): Promise<void>;
  /** Calls a method as a client does. */
  call<O = unknown>(method: string, ...args: unknown[]): Promise<O>;
  close(code?: number, reason?: string): Promise<void>;
}
