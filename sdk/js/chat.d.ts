// What belongs to ChatAgent, which index.d.ts declares.

import type { ModelPart, ModelUsage } from "./model.js";

/** A function of the agent's own that the model may call. `this` is the agent. */
export interface ChatFunction {
  description?: string;
  /** JSON Schema of its arguments, which are an object. */
  schema?: object;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  run(args: any): unknown;
}

/** A call that the model asks for. */
export interface ChatCall {
  id: string;
  /** Of the tool, such as `"notes.search"`, or of the function. */
  name: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  args: Record<string, any>;
}

/** A message as it is kept. A `note` is a reply of the agent's that the model is not told, such as that of an error. */
export interface ChatMessage {
  seq: number;
  role: "user" | "assistant" | "note";
  content: string | ModelPart[];
  /** Milliseconds since 1970. */
  at: number;
  /** Of an answer: the id of its events `message.started`, `message.delta` and `message.done`. */
  id?: string;
  model?: string;
  usage?: ModelUsage;
}

export interface ChatHistory {
  messages: ChatMessage[];
  /** Where the next page begins, when there is one. */
  next?: number;
  /** The first message that the model is still told as it was. */
  first: number;
  /** What it is told in place of those before. */
  summary?: string;
}

/** What a message of a session may be: text, or parts. */
export type ChatContent = string | ModelPart[];
