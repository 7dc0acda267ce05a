// What the module `skep` has for durable agents.
import type { AnyAgent, KV, Remote } from "./index.js";

/** The functions of `T` as a sender of messages sees them: nothing comes back. */
export type OneWay<T> = {
  [K in keyof Remote<T>]: Remote<T>[K] extends (...args: infer A) => unknown ? (...args: A) => Promise<void> : never;
};

/** Milliseconds, or a text such as `"10 seconds"`, `"1.5 hours"` or `"2 days"`. A month has 30 days, and a year 365. */
export type Duration = number | string;

/**
 * What code in an instance of an agent can do: an instance is one copy of it, named by a key, with a memory of its own.
 *
 * Work of an instance is done one piece after the other. A call, an alarm or a socket's event is a *turn*: all that it changes is
 * stored in one commit at its end, and nothing of it when it throws. A *run* may wait for years, and takes turns between its waits.
 * Each turn begins in a fresh object: only what is stored lasts.
 *
 * Outside of an instance the calls reject, or throw, a {@link SkepError}.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export interface Durable<S = any> {
  /** The instance's key, or `undefined` outside of one. */
  readonly key: string | undefined;
  /** The agent's name. */
  readonly name: string;
  /** The run's id, or `undefined` in a call that is none. */
  readonly runId: string | undefined;
  /** The session's id, where there is one. */
  readonly sessionId: string | undefined;

  /** The instance's own ordered keys, as {@link KV} has them, and SQL over its own tables. It needs no grant. */
  readonly storage: Storage;
  /** SQL over the instance's own tables. See {@link SQL}. */
  readonly sql: SQL;

  /**
   * The state that all clients of the instance see: any value of JSON, frozen. Before it was set it is `initialState`.
   * Change it with {@link setState}.
   */
  readonly state: S;
  /**
   * Sets the state. `validateStateChange` may refuse it, and `onStateChanged` is told. Clients see it when the turn has been stored.
   * @throws SkepError of kind `"conflict"` when it was changed since this code last read it: read `state` again. Code that has
   * not read it sets it whatever it is
   */
  setState(next: S): void;

  /**
   * Has a method of this agent called later, or again and again, with `payload` as its input. A call that throws is made again,
   * with growing delays. Without a name the same method, time and payload are scheduled once.
   * @param when seconds from now, a `Date`, a cron line, or an object; see {@link When}
   * @param method `"onAlarm"` unless given
   */
  schedule(when: When, method?: string, payload?: unknown, options?: ScheduleOptions): Promise<Schedule>;
  /** The same as `schedule({ every: seconds }, ...)`: from one second up. */
  scheduleEvery(seconds: number, method?: string, payload?: unknown, options?: ScheduleOptions): Promise<Schedule>;
  /** All schedules of the instance, in the order of their names. */
  listSchedules(): Promise<Schedule[]>;
  /** The schedule of that name, or `undefined`. */
  getSchedule(name: string): Promise<Schedule | undefined>;
  /** Takes a schedule back, and resolves to whether it was there. */
  cancelSchedule(name: string): Promise<boolean>;
  /** Has `onAlarm` called at a time, in place of an earlier such time: the one alarm that a Durable Object has. */
  setAlarm(when: Date | number): Promise<void>;
  /** When that is, in milliseconds since 1970, or `null`. */
  getAlarm(): Promise<number | null>;
  /** Takes it back. */
  deleteAlarm(): Promise<void>;

  /** Does a part of a run under a name. See {@link Step}. */
  readonly step: Step;
  /** Resolves after so long. In a run of an instance that may be years, and takes no memory meanwhile. */
  sleep(duration: Duration): Promise<void>;
  /** Resolves at a time: a `Date`, or milliseconds since 1970. */
  sleepUntil(when: Date | number): Promise<void>;
  /**
   * In a run: resolves to the data of the next event of that type that is sent to it.
   * @throws SkepError with the name `"TimeoutError"` and the kind `"unavailable"` when none came in time
   */
  waitForEvent<T = unknown>(type: string, options?: { timeout?: Duration }): Promise<T>;
  /**
   * Begins a run of a function, of this instance or of another agent's. It is begun once, with what else the turn or the run has changed, and goes
   * on by itself. Only a run can wait for its result.
   */
  run<O = unknown>(functionName: string, input?: unknown, options?: { agent?: string; key?: string }): Promise<RunHandle<O>>;

  /**
   * Commits what the call has changed so far, and lets other calls of the instance go first until `work` has settled: for requests that
   * take long. `work` cannot reach what belongs to the instance; what is read after it may have been changed by others. Alarms and
   * messages have the instance alone to their end, so for them nothing changes; neither does it in runs, whose waits let others go anyway.
   */
  outside<T>(work: () => Promise<T> | T): Promise<T>;

  /**
   * An instance of this one's own, of the same agent or of another: it is made by the first call, and deleted with this one or by
   * {@link deleteChild}. Nobody else can delete it.
   */
  child<T = AnyAgent>(key: string): Remote<T>;
  child<T = AnyAgent>(key: string, options: { send: true }): OneWay<T>;
  child<T = AnyAgent>(agent: string, key: string): Remote<T>;
  child<T = AnyAgent>(agent: string, key: string, options: { send: true }): OneWay<T>;
  /** Deletes such an instance and all that it kept. */
  deleteChild(key: string): Promise<void>;
  deleteChild(agent: string, key: string): Promise<void>;

  /** The clients that are connected, or those that have the tag. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  connections<A = any>(tag?: string): Promise<Connection<A>[]>;
  /** Sends a frame to all of them. See {@link Connection.send}. */
  broadcast(data: unknown, options?: BroadcastOptions): Promise<void>;
}

/** Keys of an instance's own, and SQL. */
export interface Storage extends KV {
  readonly sql: SQL;
}

/** A value in SQL. `true` and `false` go in as 1 and 0. An integer beyond 2^53 comes back as a `bigint`, bytes as a `Uint8Array`. */
export type SQLValue = null | number | bigint | string | boolean | Uint8Array | ArrayBuffer;

/**
 * Runs a statement of SQLite, and resolves to its rows as objects: up to 10,000 of them, and 8 MiB. What a turn changes is stored
 * with the turn, and undone with it.
 *
 * ```ts
 * await this.sql`CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT)`;
 * await this.sql`INSERT INTO note (text) VALUES (${text})`;
 * const notes = await this.sql<{ id: number; text: string }>`SELECT * FROM note WHERE id > ${after} ORDER BY id`;
 * ```
 */
export interface SQL {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  <R = Record<string, any>>(query: TemplateStringsArray | string, ...params: SQLValue[]): Promise<R[]>;
  /** The same, with the names of the columns, rows as arrays, and how many rows were inserted, changed or deleted. */
  raw(
    query: TemplateStringsArray | string,
    ...params: SQLValue[]
  ): Promise<{ columns: string[]; rows: Exclude<SQLValue, boolean | ArrayBuffer>[][]; changes: number }>;
}

/** When a schedule is due. Numbers are seconds, but for `at`, which in milliseconds since 1970 may stand for a `Date`. */
export type When =
  | number
  | Date
  | string
  | { delay: number }
  | { at: Date | number }
  | { every: number }
  /** Five or six fields, or a word such as `@daily`. The zone is of the IANA database, such as `"Europe/Rome"`; UTC unless given. */
  | { cron: string; zone?: string };

/** How a schedule is kept and called. */
export interface ScheduleOptions {
  /** A schedule of the same name is replaced. */
  name?: string;
  /** One of the same name that is there stays as it is. */
  keep?: boolean;
  /** Of `every` and `cron`, when the call before still runs: this one is left out, as by default, or waits. */
  overlap?: "skip" | "queue";
  /** Of `every` and `cron`, for times that passed meanwhile: one call for all, as by default, none, or one for each. */
  missed?: "once" | "skip" | "all";
  /** How often a call that throws is made in all, 6 unless given, after how many seconds first, 2, and at most, 300. */
  retry?: { attempts?: number; delay?: number; maxDelay?: number };
}

/** A schedule that is set, or that has failed for the last time. */
export interface Schedule<T = unknown> {
  readonly name: string;
  readonly method: string;
  readonly payload?: T;
  /** When it is due next. */
  readonly at: Date;
  /** In seconds. */
  readonly every?: number;
  readonly cron?: string;
  readonly zone?: string;
  /** How many attempts have failed. */
  readonly attempt?: number;
  /** It has failed for the last time. */
  readonly dead?: boolean;
  /** Of the latest attempt. */
  readonly error?: string;
}

/** What a step's function gets. */
export interface StepContext {
  /** From 1. */
  readonly attempt: number;
  readonly step: { readonly name: string };
}

/** How a step is done. Nothing is tried again unless `retries` are given. */
export interface StepOptions {
  /**
   * Further attempts after one that threw: up to `limit`, 5 unless given, after `delay`, 10 seconds unless given, which is doubled
   * each time (`"exponential"`, the default), grows by itself (`"linear"`), or stays (`"constant"`). A number is a limit. An error
   * with the name `"NonRetryableError"` or with `retryable: false` ends the step.
   */
  retries?:
    | number
    | { limit?: number; delay?: Duration | ((attempt: number, error: unknown) => Duration); backoff?: "constant" | "linear" | "exponential" };
  /** How long an attempt may take; it is rejected then with a `TimeoutError`. No limit unless given. */
  timeout?: Duration;
}

/** How a step is taken back: when the run throws or is stopped, the latest step first. A rollback that fails is logged. */
export interface StepRollback<O> {
  rollback?(ctx: StepContext & { output: O; error: unknown }): unknown;
  rollbackConfig?: StepOptions;
}

/**
 * Does a part of a run under a name, which shows in the run's events and from which the run can be restarted. The second step of
 * one name is called `"name#2"`. Steps may be in each other, and overlap.
 *
 * ```ts
 * const charge = await this.step("charge", { retries: { limit: 3, delay: "5 seconds" }, timeout: "1 minute" },
 *   () => pay(order), { rollback: ({ output }) => refund(output.id) });
 * ```
 */
export interface Step {
  <O>(name: string, fn: (ctx: StepContext) => O, more?: StepRollback<Awaited<O>>): Promise<Awaited<O>>;
  <O>(name: string, options: StepOptions & StepRollback<Awaited<O>>, fn: (ctx: StepContext) => O, more?: StepRollback<Awaited<O>>): Promise<Awaited<O>>;
  /** The same, as Cloudflare's Workflows have it. */
  do<O>(name: string, fn: (ctx: StepContext) => O, more?: StepRollback<Awaited<O>>): Promise<Awaited<O>>;
  do<O>(name: string, options: StepOptions & StepRollback<Awaited<O>>, fn: (ctx: StepContext) => O, more?: StepRollback<Awaited<O>>): Promise<Awaited<O>>;
  sleep(name: string, duration: Duration): Promise<void>;
  sleepUntil(name: string, when: Date | number): Promise<void>;
  waitForEvent<T = unknown>(
    name: string,
    options: { type: string; timeout?: Duration },
  ): Promise<{ type: string; payload: T; timestamp: Date }>;
}

/** A run that was begun. */
export interface RunHandle<O = unknown> {
  readonly id: string;
  readonly sessionId: string;
  /** Resolves to what the run returned, when it has ended; rejects with a {@link SkepError} when it failed. */
  result(): Promise<O>;
}

/** A connection of a client with the instance. It stays open while the instance sleeps. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export interface Connection<A = any> {
  readonly id: string;
  readonly tags: string[];
  /** What {@link attach} has set. `state` is another name for it. */
  readonly attachment: A | undefined;
  readonly state: A | undefined;
  /**
   * Sends a frame: text, or bytes; of any other value its JSON. Frames leave when the turn has been stored, in their order. Nothing
   * is lost when the promise is not awaited.
   */
  send(data: unknown): Promise<void>;
  /** Closes it, with a code such as 1000 or 4000 to 4999. */
  close(code?: number, reason?: string): Promise<void>;
  /** Keeps a value of JSON of up to 16 KiB with the connection. `setState` is another name for it. */
  attach(value: A): Promise<void>;
  setState(value: A): Promise<void>;
  /** Sets its tags: up to 10. */
  setTags(tags: string[]): Promise<void>;
}

/** To whom a frame is sent. */
export interface BroadcastOptions {
  tag?: string;
  /** Connections, or their ids, that do not get it. */
  except?: string | Connection | (string | Connection)[];
}
