/** What a caller can do about an error. The set is closed. */
export type Kind =
  | "internal" | "invalid" | "unauthenticated" | "denied" | "not_found" | "exists" | "conflict" | "exhausted" | "unavailable" | "failed" | "cancelled";

export class SkepError extends Error {
  readonly kind: Kind;
  /** What to do about it, in a sentence. */
  readonly hint?: string;
  /** Of HTTP, when it is known. */
  readonly status?: number;
  readonly limit?: string;
  /** Milliseconds after which trying again makes sense. */
  readonly after?: number;
}

/** A token, or what gets one: it is asked for a fresh one before each connection and request. */
export type Token = string | (() => string | Promise<string>);

export interface Server {
  /** http or https, such as "http://127.0.0.1:4747". */
  url: string;
  token?: Token;
  /** The app that it is about; the token's app, else the default one. */
  app?: string;
}

/** One entry of a log. seq is gapless from 1 within its log. */
export interface Event<Data = unknown> {
  seq: number;
  time: string;
  /** "emit" for the agent's own; name is then what the agent called it. */
  kind: string;
  name?: string;
  run?: string;
  data?: Data;
}

/** Where a connection has got: a later one goes on from there. */
export interface Position {
  life: number;
  events: number;
}

export interface ConnectOptions extends Server {
  agent: string;
  /** Of the instance; "default" unless given. */
  key?: string;
  /** Query parameters of your own, which onConnect finds in the request's URL. They are no place for what is secret. */
  query?: Record<string, string>;
  /** Whether events that the instance emits are wanted; true unless given. */
  events?: boolean;
  resume?: Position;
  /** Milliseconds for the answer to a call, 0 for no bound; 60000 unless given. */
  timeout?: number;
  /** Milliseconds between signs of life; 25000 unless given. */
  heartbeat?: number;
  /** Milliseconds before a lost connection is opened anew: min, then longer each time up to max. attempts bounds how often. */
  reconnect?: { min?: number; max?: number; attempts?: number };
  /** For places without a global WebSocket, such as Node below 22: the class of the package ws. */
  WebSocket?: unknown;
}

/** The methods of an agent as its clients see them. */
type Method<A, K extends keyof A> = A[K] extends (...args: infer P) => infer R ? (...args: P) => R : never;

export interface Connection<State = unknown, A = Record<string, (...args: any[]) => any>> {
  readonly agent: string;
  readonly key: string;
  /** What clients share, with this client's own changes in it already. undefined when it was never set. */
  readonly state: State | undefined;
  /** The version of the state as the server has it; 0 when it was never set. */
  readonly version: number;
  readonly position: Position;
  readonly connected: boolean;
  /** Resolves once the connection is open and the state known. */
  ready(): Promise<void>;
  /**
   * Sets the whole state, or what a function makes of it, and resolves to its version. It is seen here at once, and taken back when the
   * server refuses it: then the promise rejects. A function is applied again when somebody else was faster.
   */
  setState(next: State | ((state: State | undefined) => State)): Promise<number>;
  /** Calls a method. A call under way when the connection is lost rejects with kind "unavailable", and may have taken effect. */
  call<K extends keyof A & string>(method: K, ...args: Parameters<Method<A, K>>): Promise<Awaited<ReturnType<Method<A, K>>>>;
  /** Calls a method that yields, and iterates over what it yields. */
  stream<T = unknown>(method: keyof A & string, ...args: unknown[]): AsyncGenerator<T, void, void>;
  /** Sends text, bytes or what has a JSON form to the agent's onSocketMessage. */
  send(data: string | ArrayBuffer | ArrayBufferView | object): void;
  close(code?: number, reason?: string): void;

  on(type: "state", fn: (state: State | undefined) => void): () => void;
  on(type: "event", fn: (event: Event) => void): () => void;
  /** A frame that the agent's code sent. */
  on(type: "message", fn: (data: string | ArrayBuffer) => void): () => void;
  on(type: "open", fn: () => void): () => void;
  /** final tells that it will not be opened anew. */
  on(type: "close", fn: (close: { code: number; reason: string; final: boolean }) => void): () => void;
  /** A message that the agent's code failed to take. */
  on(type: "error", fn: (error: SkepError) => void): () => void;
}

/** Opens a connection with an instance, and opens it anew whenever it is lost. */
export function connect<State = unknown, A = Record<string, (...args: any[]) => any>>(options: ConnectOptions): Connection<State, A>;

export interface Agent {
  name: string;
  plugin: string;
  description?: string;
  [more: string]: unknown;
}

export interface Run {
  id: string;
  session: string;
  agent: string;
  function: string;
  status: string;
  [more: string]: unknown;
}

export interface List<T> {
  items: T[];
  next?: string;
}

export interface CallOptions {
  /** Milliseconds, when less than the agent's limit. */
  timeout?: number;
  signal?: AbortSignal;
}

export interface EventOptions {
  /** The number of the last event seen; 0 for all. */
  after?: number;
  /** Whether to go on at the end of the log; true unless given. */
  follow?: boolean;
  /** Milliseconds for which a server that cannot be reached is tried again; 60000 unless given. */
  patience?: number;
  signal?: AbortSignal;
}

export type Log = { run: string } | { session: string } | { agent: string; key?: string };

export interface Instance {
  readonly agent: string;
  readonly key: string;
  call<T = unknown>(method: string, input?: unknown, options?: CallOptions): Promise<T>;
  /** Calls a method and yields what it yields, as it comes; returns what it returns. Who stops reading ends the call. */
  stream<T = unknown, R = unknown>(method: string, input?: unknown, options?: CallOptions): AsyncGenerator<T, R, void>;
  get(): Promise<Record<string, unknown>>;
  delete(): Promise<void>;
  events(options?: EventOptions): AsyncGenerator<Event, void, void>;
  connect<State = unknown, A = Record<string, (...args: any[]) => any>>(options?: Partial<ConnectOptions>): Connection<State, A>;
}

export interface Session {
  id: string;
  agent: string;
  key: string;
  title?: string;
  last_seq: number;
  [more: string]: unknown;
}

/** A piece of a message to an agent. */
export type MessagePart =
  | { type: "text"; text: string }
  | { type: "image" | "file"; mime?: string; data?: string; url?: string; file?: string; name?: string };

/** Calls of tools that a person is asked about. */
export interface Approval {
  id: string;
  run: string;
  agent: string;
  title?: string;
  calls?: { tool: string; args: unknown; decision: { effect: string; reason: string; [more: string]: unknown }; undo?: boolean; [more: string]: unknown }[];
  question?: { server: string; message: string; url?: string; schema?: unknown; [more: string]: unknown };
  expires: string;
  [more: string]: unknown;
}

export interface Answered {
  id: string;
  allow: boolean;
  by: string;
  reason?: string;
}

export interface ApprovalAnswer {
  reason?: string;
  /** What is allowed: this once, the same tools for the rest of the run, or what a pattern matches. */
  scope?: "once" | "run" | "pattern";
  pattern?: string;
  count?: number;
  content?: unknown;
}

/** A call of a tool, as it was judged and as it ended. */
export interface ToolUse {
  tool: string;
  call?: number;
  args?: unknown;
  decision?: { verdict: string; effect: string; rule: string; reason: string; [more: string]: unknown };
  bytes?: number;
  error?: string;
}

/** Tokens. What was read from a cache, or written to one, is part of input, and reasoning of output. */
export interface TokenUsage {
  input: number;
  output: number;
  cache_read?: number;
  cache_write?: number;
  reasoning?: number;
}

/** What happens next in a conversation. seq is the number of the event that told it, id that of the model's answer. */
export type ChatPart = { seq: number; run?: string } & (
  | { type: "message"; role: string; content: unknown }
  | { type: "start"; id: string; model?: string }
  /** The server died in the middle, and the model is asked again: forget what was told under this id. */
  | { type: "restart"; id: string; model?: string }
  | { type: "text" | "reasoning" | "refusal"; id: string; index: number; text: string }
  /** The model writes a call: its name comes with the first part, text is the next of the arguments, as JSON. */
  | { type: "call"; id: string; index: number; text: string; name?: string; call?: string }
  | { type: "answer"; id: string; model?: string; stop?: string; usage?: TokenUsage; error?: string }
  | { type: "tool" | "returned"; tool: ToolUse }
  | { type: "approval"; approval: Approval }
  | { type: "answered"; answered: Answered }
  /** An event of the agent's own. */
  | { type: "event"; name: string; data?: unknown }
  | { type: "done"; status: "completed"; output: unknown; error?: undefined }
  | { type: "done"; status: "failed" | "cancelled"; error: SkepError; output?: undefined }
);

/** A piece of a message in a Transcript. of is the answer that it belongs to. */
export type TranscriptPart =
  | MessagePart
  | { type: "text" | "reasoning" | "refusal"; of?: string; index?: number; text: string }
  | { type: "call"; of: string; index: number; text: string; name?: string; call?: string }
  | { type: "tool"; tool: ToolUse; returned?: ToolUse }
  | { type: "approval"; approval: Approval; answered?: Answered }
  | { type: "error"; of: string; text: string };

export interface TranscriptMessage {
  role: "user" | "assistant";
  run?: string;
  parts: TranscriptPart[];
  /** Nothing more will come. */
  done: boolean;
  model?: string;
  stop?: string;
  usage?: TokenUsage;
  error?: SkepError;
}

/** Makes what happens in a conversation of the events of its log. It takes each event once, and text once. */
export class ChatFold {
  add(event: Event<any>): ChatPart[];
}

/** Makes the messages of a conversation of the events of its log. */
export class Transcript {
  readonly messages: TranscriptMessage[];
  /** The number of the newest event. */
  readonly seen: number;
  /** Takes an event, and returns whether it has changed the messages. */
  add(event: Event<any>): boolean;
}

export interface FollowOptions {
  /** Milliseconds for which a server that cannot be reached is tried again; 60000 unless given. */
  patience?: number;
  signal?: AbortSignal;
}

/** What comes of a message: parts, up to the end of the run. A connection that breaks loses and doubles nothing. */
export interface Turn extends AsyncIterable<ChatPart> {
  readonly run: Promise<Run>;
  /** Waits for the end and returns the answer's text. Throws what the run failed with. */
  text(): Promise<string>;
}

export class Chat {
  constructor(client: Client, agent: string, options?: ChatOptions);
  readonly agent: string;
  /** Its id, once there is a session. */
  readonly session: string | undefined;
  /** Makes the session, if there is none yet, and returns its id. The first message does it, too. */
  open(): Promise<string>;
  /** Sends a message at once. */
  send(content: string | MessagePart[], options?: FollowOptions & { idempotencyKey?: string }): Turn;
  /** Ends the answer to the newest message that was sent here. */
  cancel(): Promise<void>;
  /** Allows or refuses what an approval asks. */
  answer(approval: string | Approval, allow: boolean, more?: ApprovalAnswer): Promise<unknown>;
  /** What was said so far. */
  messages(options?: { signal?: AbortSignal }): Promise<TranscriptMessage[]>;
  /** Yields the messages, at first and whenever they change, whoever sends them. It is the same array each time. */
  watch(options?: FollowOptions): AsyncGenerator<TranscriptMessage[], void, void>;
}

export interface ChatOptions {
  /** A session to go on with; else the first message makes one. */
  session?: string;
  /** Of the instance that a new session is with; "default" unless given. */
  key?: string;
  title?: string;
}

export interface SignalOptions {
  signal?: AbortSignal;
}

/** What sandboxes are made of. The name is no part of what can be changed. Times are in nanoseconds. */
export interface EnvironmentInput {
  name: string;
  /** As the provider knows it; skep image build makes one. */
  image: string;
  description?: string;
  provider?: "docker" | "podman" | "kubernetes";
  runtime?: string;
  /** That the image has to have: deb:NAME, npm:NAME@VERSION, or npm:NAME. */
  packages?: string[];
  /** A script for sh, run in the workspace before any work. */
  setup?: string;
  variables?: Record<string, string>;
  network?: unknown[];
  /** Capabilities that have to be enforced. */
  requires?: string[];
  /** memory and disk in bytes. */
  size?: { memory?: number; cpus?: number; pids?: number; disk?: number };
  idle?: number;
  life?: number;
}

export interface Environment extends EnvironmentInput {
  app: string;
  /** From 1. */
  revision: number;
  created: string;
}

export interface SandboxProvider {
  name: string;
  version?: string;
  ready: boolean;
  /** Why it is not ready. */
  error?: string;
  isolation: string;
  [more: string]: unknown;
}

/** The record of a sandbox. */
export interface SandboxInfo {
  id: string;
  app: string;
  agent: string;
  /** NAME@REVISION */
  environment: string;
  provider: string;
  keep?: string;
  state: string;
  /** Counts what was made for it, from 1. */
  generation: number;
  session?: string;
  run?: string;
  error?: { kind: string; message: string; [more: string]: unknown };
  created: string;
  [more: string]: unknown;
}

/** What the checkpoint of a pet has. */
export interface SandboxCheckpoint {
  sandbox: string;
  generation: number;
  environment: string;
  created: string;
  /** Of the tar, as bytes are. */
  digest: string;
  bytes: number;
  files: { path: string; type: "file" | "dir" | "link"; mode: number; size: number; sha256?: string; target?: string }[];
}

export interface ExecOptions extends SignalOptions {
  /** Absolute, or within the workspace; the workspace unless given. */
  dir?: string;
  env?: Record<string, string>;
  stdin?: string;
  /** Milliseconds; 600000 unless given, and none in the background. */
  timeout?: number;
}

/** How a program ended. */
export interface ExecResult {
  id?: string;
  /** -1 when it was ended by a signal. */
  code: number;
  signal?: string;
  /** It had no memory left. */
  oom?: boolean;
  timed_out?: boolean;
  stdout?: string;
  stderr?: string;
  /** Bytes that are not in these. */
  dropped?: number;
}

/** A piece of a program's output. The first has its id, the last how it ended. */
export interface ExecOutput {
  id?: string;
  stdout?: string;
  stderr?: string;
  exit?: ExecResult;
}

export interface SandboxProcess {
  id: string;
  pid: number;
  command: string[];
  started: string;
  ended?: boolean;
  code?: number;
}

export interface SandboxFile {
  path: string;
  type: "file" | "dir" | "link" | "other";
  size: number;
  mode: number;
  modified: string;
  /** Of a link. */
  target?: string;
}

/** Bytes to send. A string is sent as UTF-8. */
export type Content = string | Uint8Array | ArrayBuffer | Blob;

export interface Repo {
  commit: string;
  branch?: string;
  files: number;
}

/** What was changed in a workspace. Counts of lines are -1 for what is no text. */
export interface Changes {
  base: string;
  bytes: number;
  files: number;
  changed: { path: string; op: "add" | "change" | "delete" | "rename"; from?: string; added: number; removed: number }[];
}

/** A sandbox, from client.sandbox. Paths are absolute, or within its workspace. Methods throw SkepError; "cancelled" when their signal was aborted. */
export class Sandbox {
  private constructor();
  readonly id: string;
  readonly files: {
    /** Lists a folder; the workspace unless given. more tells that there are more files than were listed. */
    list(dir?: string, options?: SignalOptions & { recursive?: boolean }): Promise<{ files: SandboxFile[]; more?: boolean }>;
    read(file: string, options?: SignalOptions): Promise<Uint8Array>;
    /** Reads a file as UTF-8. */
    text(file: string, options?: SignalOptions): Promise<string>;
    /** Reads a file as it comes. */
    open(file: string, options?: SignalOptions): Promise<ReadableStream<Uint8Array>>;
    /** Writes a file, whole or not at all. mode is of Unix; 0o644 unless given. */
    write(file: string, content: Content, options?: SignalOptions & { mode?: number }): Promise<SandboxFile>;
    /** Deletes a file; a folder with recursive. */
    delete(file: string, options?: SignalOptions & { recursive?: boolean }): Promise<void>;
  };
  get(options?: SignalOptions): Promise<SandboxInfo>;
  /** Deletes it, with what is kept of a pet. */
  delete(options?: SignalOptions): Promise<void>;
  /**
   * Runs a program and waits for its end; who gives up waiting ends it. A string is a line for sh, an array a program and its arguments. output is the most
   * bytes of stdout and of stderr in the result, of their ends; 65536 unless given.
   */
  exec(command: string | string[], options?: ExecOptions & { output?: number }): Promise<ExecResult>;
  /** Runs a program and yields its output as it comes. Who stops reading, or aborts the signal, ends it. */
  stream(command: string | string[], options?: ExecOptions): AsyncGenerator<ExecOutput, void, void>;
  /** Begins a program in the background. signal ends it, by its id. */
  start(command: string | string[], options?: ExecOptions): Promise<{ id: string; pid: number }>;
  /** The programs that were started. */
  processes(options?: SignalOptions): Promise<SandboxProcess[]>;
  /** Sends a signal, such as "INT", to a program and all that it has started; TERM, followed by KILL, unless given. */
  signal(process: string, signal?: string, options?: SignalOptions): Promise<void>;
  /** Clones a git repository into the workspace. depth counts commits of history; all unless given. */
  clone(url: string, options?: SignalOptions & { ref?: string; depth?: number }): Promise<Repo>;
  /** Unpacks a tar archive as what the workspace begins with. */
  putRepo(tar: Content, options?: SignalOptions): Promise<Repo>;
  /** What was changed in the workspace since its repository came, or since the commit base. */
  changes(options?: SignalOptions & { base?: string }): Promise<Changes>;
  /** The same as a patch of git. */
  diff(options?: SignalOptions & { base?: string }): Promise<string>;
  /** A tar archive of a folder, or of one path in it; of the workspace unless given. */
  backup(options?: SignalOptions & { dir?: string; path?: string }): Promise<Uint8Array>;
  /** The same as it comes. */
  openBackup(options?: SignalOptions & { dir?: string; path?: string }): Promise<ReadableStream<Uint8Array>>;
  /** Unpacks a tar archive in a folder; in the workspace unless given. */
  restore(tar: Content, options?: SignalOptions & { dir?: string }): Promise<void>;
  /** Makes a link to what listens at a port, for a browser. Whoever has it can use it, for lasts milliseconds: an hour unless given, a day at most. */
  link(port: number, options?: SignalOptions & { lasts?: number }): Promise<{ url: string; expires: string }>;
  /** Makes a pet anew, in its environment's newest revision, with nothing but its checkpoint, and returns when it can be used. */
  recreate(options?: SignalOptions): Promise<SandboxInfo>;
  /** Keeps the checkpoint of a pet alone, until its next use. */
  hibernate(options?: SignalOptions): Promise<SandboxInfo>;
  /** Deletes all that is kept of a pet. */
  reset(options?: SignalOptions): Promise<SandboxInfo>;
  /** What the newest checkpoint of a pet has. */
  checkpoint(options?: SignalOptions): Promise<SandboxCheckpoint>;
}

export class Client {
  constructor(options: Server & { fetch?: typeof fetch; WebSocket?: unknown });
  agents: {
    list(page?: { after?: string; limit?: number }): Promise<List<Agent>>;
    get(name: string): Promise<Agent>;
    create(agent: { name: string; plugin: string; [more: string]: unknown }): Promise<Agent>;
    update(name: string, patch: object): Promise<Agent>;
    delete(...names: string[]): Promise<void>;
  };
  runs: {
    list(filter?: { agent?: string; session?: string; status?: string; after?: string; limit?: number }): Promise<List<Run>>;
    get(id: string): Promise<Run>;
    cancel(...ids: string[]): Promise<unknown>;
  };
  sessions: {
    list(filter?: { agent?: string; after?: string; limit?: number }): Promise<List<Session>>;
    get(id: string): Promise<Session>;
    create(session: { agent: string; key?: string; title?: string }): Promise<Session>;
    /** Sends a message, which starts a run. */
    send(id: string, content: unknown, options?: { role?: string; idempotencyKey?: string }): Promise<Run>;
  };
  approvals: {
    list(filter?: { run?: string; agent?: string; after?: string; limit?: number }): Promise<List<Approval>>;
    get(id: string): Promise<Approval>;
    /** Answers questions of one run, all or none. */
    answer(ids: string[], answer: ApprovalAnswer & { allow: boolean }): Promise<unknown>;
  };
  /** What sandboxes are made of. A name may be NAME@REVISION where one is read. */
  environments: {
    list(page?: { after?: string; limit?: number }): Promise<List<Environment>>;
    get(name: string): Promise<Environment>;
    /** Oldest first. */
    revisions(name: string, page?: { after?: string; limit?: number }): Promise<List<Environment>>;
    /** Makes the next revision, unless nothing has changed. */
    put(environment: EnvironmentInput): Promise<Environment>;
    delete(name: string): Promise<void>;
  };
  sandboxes: {
    /** Where sandboxes can be made, and what each has. */
    providers(): Promise<SandboxProvider[]>;
    /** Newest first. */
    list(filter?: { agent?: string; after?: string; limit?: number }): Promise<List<SandboxInfo>>;
    get(id: string): Promise<SandboxInfo>;
    /** Opens a sandbox of an agent, and waits until it can be used: a pet's own, else one for the caller, who deletes it. */
    open(agent: string, options?: SignalOptions & { session?: string }): Promise<SandboxInfo>;
  };
  /** A sandbox by its id, or by its record. */
  sandbox(of: string | { id: string }): Sandbox;
  /** A conversation with an agent: a session that there is, or one that the first message makes. */
  chat(agent: string, options?: ChatOptions): Chat;
  /** Runs a function of an agent in a fresh cell. JSON comes back as a value, text as a string, else bytes. */
  call<T = unknown>(agent: string, fn: string, input?: unknown, options?: CallOptions): Promise<T>;
  instance(agent: string, key?: string): Instance;
  /** Starts a run, and returns it at once. */
  run(agent: string, fn?: string, input?: unknown, options?: { session?: string; key?: string; idempotencyKey?: string }): Promise<Run>;
  /** Returns a run when it has ended, and throws what it failed with. */
  wait(id: string, options?: EventOptions): Promise<Run>;
  /** Follows a log: of a run up to its end, of others for ever. No event is missed or comes twice. */
  events(log: Log, options?: EventOptions): AsyncGenerator<Event, void, void>;
}
