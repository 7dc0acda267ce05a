import type { AnyAgent } from "./index.js";

/** A double of Skep: it calls an agent's functions in this process and records what they did. */
export class FakeHost {
  constructor(options?: {
    /** Settings of the agent. */
    config?: Record<string, string>;
    /** Other agents that it may call, by name. */
    agents?: Record<string, AnyAgent>;
  });
  /** What was emitted, oldest first. */
  readonly events: { name: string; data?: unknown }[];
  /**
   * Calls a function of an agent.
   * @param agent the imported module (`import * as agent from "./agent.ts"`), its class, or its object
   */
  call<O = unknown>(agent: unknown, functionName: string, input?: unknown): Promise<O>;
}
