import type { AnyAgent, KV } from "./index.js";

/** A double of Skep: it calls an agent's functions in this process and records what they did. */
export class FakeHost {
  constructor(options?: {
    /** Settings of the agent. */
    config?: Record<string, string>;
    /** Other agents that it may call, by name. */
    agents?: Record<string, AnyAgent>;
    /**
     * Answers the agent's `fetch`, in place of the network: without it every request is refused, as it is where nothing is granted.
     * Placeholders of secrets stand in the request as the agent wrote them.
     */
    fetch?: (request: Request) => Response | Promise<Response>;
    /** What its state has at first, by key. */
    state?: Record<string, unknown>;
  });
  /** Its state, which lasts over the calls of one host. No grant bounds it. */
  readonly kv: KV;
  /** What was emitted, oldest first. */
  readonly events: { name: string; data?: unknown }[];
  /**
   * Calls a function of an agent.
   * @param agent the imported module (`import * as agent from "./agent.ts"`), its class, or its object
   */
  call<O = unknown>(agent: unknown, functionName: string, input?: unknown): Promise<O>;
}
