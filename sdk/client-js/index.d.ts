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
  get(): Promise<Record<string, unknown>>;
  delete(): Promise<void>;
  events(options?: EventOptions): AsyncGenerator<Event, void, void>;
  connect<State = unknown, A = Record<string, (...args: any[]) => any>>(options?: Partial<ConnectOptions>): Connection<State, A>;
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
