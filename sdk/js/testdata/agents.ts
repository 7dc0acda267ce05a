// What authors write; the type checker must take it, and refuse what is marked.
import { Agent, SkepError, agent, callAgent, config, emit, kv, log, sleep, type AgentObject, type Context, type Message } from "skep";

const tool = {
  stats(text: string) {
    return { words: text.split(" ").length };
  },
  async now() {
    return 1;
  },
};

export default class Full extends Agent<{ word?: string }> {
  async onMessage(message: Message<string>) {
    this.emit("heard", { length: message.content.length });
    const { words } = await this.agent<typeof tool>("text-tool").stats(message.content);
    const n: number = await this.agent<typeof tool>("text-tool").now();
    // @ts-expect-error: stats takes a string
    void this.agent<typeof tool>("text-tool").stats(1);
    // @ts-expect-error: there is no such function
    void this.agent<typeof tool>("text-tool").nothing();
    this.log.warn("words", words, n);
    return `${this.config.word ?? "Hello"}: ${words}`;
  }
  fetch(request: Request) {
    return Response.json({ path: new URL(request.url).pathname });
  }
}

export const object: AgentObject = {
  async fetch(request, env, ctx) {
    ctx.waitUntil(sleep(1));
    return new Response(`${request.method} ${env.word}`);
  },
};

export async function plain(input: { n: number }, ctx: Context) {
  ctx.emit("n", input.n);
  emit("same");
  log("words", config.word);
  try {
    return await callAgent<number>("other", "f", input);
  } catch (e) {
    if (e instanceof SkepError && e.kind === "denied") {
      return e.limit;
    }
    throw e;
  }
}

export async function remembers(_: unknown, ctx: Context) {
  const visits = (await kv.get<number>("visits")) ?? 0;
  const version: number = await ctx.kv.set("visits", visits + 1, { ifVersion: 0 });
  const now: number | undefined = await kv.compareAndSet("visits", version, visits);
  for await (const e of kv.entries<string>({ prefix: "note/", reverse: true })) {
    log(e.key, e.value.length, e.version);
  }
  // @ts-expect-error: a check names a version
  await kv.batch([{ op: "check", key: "k" }]);
  return [now, (await kv.list({ limit: 1 })).after, await kv.getMany<number>(["a", "b"])];
}
