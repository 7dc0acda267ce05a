// Models, for agents and for scripts of code mode.

/**
 * The models that were granted: `skep agent update NAME --grant-model @main`. A model is asked for as `@ROUTE`, as `PROVIDER/MODEL`, or by a name that a
 * route or a provider knows; `@main` unless said.
 *
 * ```ts
 * const a = await this.model.generate("Why do bees dance?");
 * return a.text;
 * ```
 */
export interface Models {
  /**
   * Asks a model and resolves to its answer. While it calls tools that all have a `run`, they are run and it is asked again, up to `maxSteps` times.
   * @throws SkepError of kind `"denied"` when the model was not granted; `"exhausted"` when a limit is reached; `"unavailable"` when nobody answers
   */
  generate(ask: string | (ModelAsk & { maxSteps?: number })): Promise<ModelAnswer>;
  /**
   * Asks a model and returns its answer in pieces, as they come. Tools that have a `run` are run as by `generate`: the pieces of all answers come one after
   * the other, and between them what the tools have returned. A stream does not outlive its process: after a crash, reading it fails with kind
   * `"unavailable"`. `generate` with `show` is made again instead.
   */
  stream(ask: string | (ModelAsk & { maxSteps?: number })): ModelStream;
  /** Lists the models and routes that were granted. */
  list(): Promise<ModelInfo[]>;
}

/** What a model is asked. */
export interface ModelAsk {
  /** `"@main"` unless given. */
  model?: string;
  /** What the model shall keep to. */
  system?: string;
  /** What was said, the oldest first. */
  messages?: readonly ModelMessage[];
  /** In place of `messages`: one message of the user. */
  prompt?: string | readonly ModelPart[];
  /** Tools that the model may ask to be called: an array, or an object by their names. */
  tools?: readonly (ModelTool & { name: string })[] | Readonly<Record<string, ModelTool>>;
  /** `"auto"`, `"none"`, `"any"`, or the name of a tool. */
  choice?: string;
  maxTokens?: number;
  temperature?: number;
  topP?: number;
  stop?: readonly string[];
  /** How much the model shall think. A text is the effort. `show` has its thoughts, or a summary of them, in the answer. */
  reasoning?: string | { effort?: string; budget?: number; show?: boolean };
  /** Asks for JSON of that schema. */
  format?: { name?: string; schema?: object };
  /** On whose behalf it is asked, for limits and accounts. */
  user?: string;
  /** Has the provider keep the instructions and what was said before in its cache. */
  cache?: boolean;
  /**
   * An id, under which the host writes the answer into the session's log while it comes: as events `message.started`, `message.delta` and
   * `message.done`. The pieces do not pass through the code.
   */
  show?: string;
}

export interface ModelMessage {
  role: "user" | "assistant";
  content: string | readonly ModelPart[];
}

/** A piece of a message. Those of an answer go back to the model as they are. */
export type ModelPart =
  | { type: "text"; text: string; opaque?: string; origin?: unknown }
  | { type: "reasoning"; text?: string; opaque?: string; redacted?: boolean; origin?: unknown }
  | { type: "refusal"; text: string }
  | { type: "tool-call"; id: string; name: string; args?: unknown; opaque?: string; origin?: unknown }
  | { type: "tool-result"; id: string; name?: string; result?: string | readonly ModelPart[]; failed?: boolean }
  | {
      type: "image" | "file";
      mime?: string;
      /** Bytes, or their base64. */
      data?: string | Uint8Array | ArrayBuffer;
      url?: string;
      /** The path of a file of the session. */
      file?: string;
      name?: string;
    };

export interface ModelTool {
  description?: string;
  /** JSON Schema of its arguments, which are an object. */
  schema?: object;
  /** Answers a call. What it throws is told to the model. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  run?: (args: any) => unknown;
}

/** A call of a tool that a model asks for. */
export interface ModelCall {
  id: string;
  name: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  args: any;
}

export interface ModelUsage {
  /** Tokens of what the model was asked. */
  input: number;
  /** Of `input`: what came from the provider's cache. */
  cacheRead: number;
  /** Of `input`: what the provider has put into its cache. */
  cacheWrite: number;
  output: number;
  /** Of `output`. */
  reasoning: number;
}

export interface ModelAnswer {
  readonly id: string;
  readonly model: string;
  readonly content: ModelPart[];
  /** Why it ended. */
  readonly stop: "end" | "length" | "tool" | "filter" | "pause" | "unknown";
  readonly usage: ModelUsage;
  /** What this adds to the conversation: the answer, and before it the steps that `generate` or `stream` has made. */
  readonly messages: ModelMessage[];
  /** The texts of `content`. */
  readonly text: string;
  /** The thoughts that it shows. */
  readonly reasoning: string;
  readonly refusal: string;
  /** The calls of tools that it asks for. */
  readonly calls: ModelCall[];
  /** `text` as JSON. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly json: any;
}

/**
 * A piece of an answer. `index` counts the parts of what the model says, over all answers of a stream; the text of a `tool-call` is of its arguments, as JSON.
 * A `tool-result` is what a tool with a `run` has returned. The last piece is the last answer.
 */
export type ModelPiece =
  | { type: "text" | "reasoning" | "refusal"; index: number; text: string }
  | { type: "tool-call"; index: number; id?: string; name?: string; text?: string }
  | { type: "tool-result"; id: string; name: string; result: string; failed?: boolean }
  | { type: "end"; answer: ModelAnswer };

export interface ModelStream extends AsyncIterable<ModelPiece> {
  /** The whole, also when nobody reads the pieces. */
  readonly answer: Promise<ModelAnswer>;
  /** Gives up what goes on. Leaving a `for await` does so, too. */
  close(): Promise<void>;
}

export interface ModelInfo {
  name: string;
  description?: string;
}
