// What authors write; the type checker must take it, and refuse what is marked.
import {
  Agent, ChatAgent, NonRetryableError, SkepError, ToolError, agent, callAgent, child, config, deleteChild, emit, files, kv, log, model, run, skills, sleep, step, storage, tools,
  waitForEvent,
  type AgentObject, type ChatCall, type ModelAnswer, type Connection, type Context, type Message, type Schedule,
} from "skep";

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

interface Count {
  n: number;
}

export class Durable extends Agent<{ word?: string }, Count> {
  initialState = { n: 0 };
  validateStateChange(next: Count, source: string) {
    if (next.n < 0) throw new RangeError(source);
  }
  onStateChanged(state: Count) {
    this.emit("changed", state.n);
  }
  async remind(text: string) {
    await this.broadcast({ text }, { tag: "room", except: ["c1"] });
  }
  async onAlarm(payload: { n: number }) {
    this.setState({ n: this.state.n + payload.n });
    // @ts-expect-error: the state has a shape
    this.setState({ m: 1 });
  }
  async onConnect(connection: Connection<{ name: string }>, { request }: { request: { url: string; headers: Headers } }) {
    await connection.attach({ name: new URL(request.url).searchParams.get("name") ?? "" });
    const name: string | undefined = connection.state?.name;
    connection.send(name ?? new Uint8Array([1]));
  }
  onSocketMessage(connection: Connection, data: string | Uint8Array) {
    if (data === "bye") void connection.close(4000, "enough");
  }
  async plan() {
    const s: Schedule = await this.schedule(60, "remind", "tea", { name: "tea", keep: true, retry: { attempts: 3, delay: 1 } });
    await this.schedule({ cron: "0 9 * * 1-5", zone: "Europe/Rome" }, "remind", "stand up", { missed: "skip", overlap: "queue" });
    await this.scheduleEvery(3600, "onAlarm", { n: 1 });
    await this.setAlarm(new Date());
    // @ts-expect-error: there is no such method
    await this.schedule(1, "remindd");
    // @ts-expect-error: every is in seconds
    await this.schedule({ every: "1 hour" });
    return [s.at.getTime(), await this.cancelSchedule(s.name), (await this.getSchedule("tea"))?.cron, (await this.listSchedules()).length];
  }
  async work(input: { id: string }) {
    const paid: { id: string } = await this.step("charge", { retries: { limit: 3, delay: "5 seconds" }, timeout: "1 minute" }, async ({ attempt }) => ({ id: input.id + attempt }), {
      rollback: ({ output, error }) => this.log.warn(output.id, error),
    });
    const n: number = await this.step.do("count", () => 1);
    await this.sleep("2 days");
    await this.step.sleep("nap", 500);
    const { by } = await this.waitForEvent<{ by: string }>("approved", { timeout: "1 week" });
    const event = await this.step.waitForEvent<{ ok: boolean }>("go", { type: "go" });
    const handle = await run<number>("plan", undefined, { key: "other" });
    const result: number = await handle.result();
    if (!event.payload.ok) throw new NonRetryableError("stopped");
    return [paid.id, n, by, result, this.key, this.runId];
  }
  async others() {
    const words: { words: number } = await this.agent<typeof tool>("text-tool", "main").stats("a b");
    const nothing: void = await this.agent<typeof tool>("text-tool", "main", { send: true }).stats("a b");
    await this.child<typeof tool>("c1").stats("x");
    await child<typeof tool>("text-tool", "c1", { send: true }).stats("x");
    await deleteChild("text-tool", "c1");
    return [words, nothing];
  }
  async rows(after: number) {
    await this.sql`CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT)`;
    const notes = await this.sql<{ id: number; text: string }>`SELECT * FROM note WHERE id > ${after} AND text <> ${null}`;
    const { columns, changes } = await storage.sql.raw("DELETE FROM note WHERE id = ?", 1n);
    // @ts-expect-error: a date is no value of SQL
    await this.sql`SELECT ${new Date()}`;
    await this.storage.batch([{ op: "set", key: "k", value: 1 }]);
    return [notes.map((note) => note.text.length), columns.length, changes];
  }
}

/** Agents may have methods with names of ours. */
export class Own extends Agent {
  run(task: { goal: string }) {
    return task.goal;
  }
}

export async function inAFunction(_: unknown, ctx: Context<Record<string, string>, Count>) {
  ctx.setState({ n: ctx.state.n + 1 });
  await step("one", () => 1);
  await waitForEvent("x");
  await ctx.schedule(1, "plain");
  return [ctx.key, ctx.name, ctx.sessionId, (await ctx.connections("t")).map((c) => c.id)];
}

export async function useTools(input: { dir: string }, ctx: Context) {
  const found = await tools.search("create issue", { server: "github", limit: 3, effect: "modify" });
  console.log(found.more, found[0]?.path, await tools.describe(["github.*"], { level: "full" }));
  const issues: { title: string }[] = await ctx.tools.github.search_issues({ query: "bug" });
  await tools.fs["write-file"]({ path: input.dir, content: issues.map((i) => i.title).join() });
  const n = await tools.call<number>("fs.count", { path: input.dir });
  // @ts-expect-error: the arguments are an object
  await tools.fs.read_file("a");
  // @ts-expect-error: there is no such level
  await tools.describe("a.b", { level: "all" });
  try {
    await tools.change("Tidy up", [{ tool: "fs.delete", args: { path: "a" }, undo: { tool: "fs.write", args: {} } }, { tool: "fs.delete", undo: (r) => r }]);
  } catch (e) {
    if (e instanceof ToolError && e.kind === "denied") return [e.tool, e.hint, e.data];
  }
  const text: string = await files.read("a.txt");
  const bytes: Uint8Array = await files.read({ artifact: "artifacts/1/a.png" }, { as: "bytes" });
  const doc = await files.read<{ a: number }>("a.json", { as: "json", offset: 0 });
  const { path, size } = await files.write("b.json", { text, doc, bytes: bytes.length, n });
  const skill = await skills.load((await skills.list())[0].name);
  return [path, size, skill.text, (await files.list("a/")).map((f) => f.size)];
}

export class WithTools extends Agent {
  async f() {
    return [await this.tools.fs.list(), await this.files.list(), await this.skills.list()];
  }
}

export class Asks extends Agent {
  async ask() {
    const a: ModelAnswer = await this.model.generate("Hello");
    const messages = [{ role: "user" as const, content: "Hello" }, ...a.messages];
    const b = await model.generate({ model: "@cheap", messages, tools: { now: { run: () => Date.now() } }, maxSteps: 3, reasoning: "low" });
    for await (const p of model.stream({ prompt: "x", show: "s" })) {
      if (p.type === "text") log(p.text);
      if (p.type === "end") log(p.answer.usage.input);
    }
    // @ts-expect-error: it is maxTokens
    await model.generate({ prompt: "x", max_tokens: 1 });
    // @ts-expect-error: nobody else speaks
    await model.generate({ messages: [{ role: "system", content: "x" }] });
    return [b.text, b.calls.map((c) => c.name), (await model.list())[0]?.name];
  }
}

export class Assistant extends ChatAgent<{ tone?: string }> {
  model = "@cheap";
  instructions = () => `Be ${this.config.tone}.`;
  tools = ["notes.*"];
  options = { temperature: 0 };
  static functions = { today: { description: "The date.", run: () => new Date().toISOString() } };
  onReply(answer: ModelAnswer) {
    this.emit("answered", answer.usage);
  }
  async onToolCall(call: ChatCall) {
    if (call.name === "notes.drop") throw new Error("not this one");
    return undefined;
  }
  async onStart() {
    const { messages, next } = await this.history({ limit: 10 });
    log(messages[0]?.role, next);
    await tools.notes.find({ q: "x" });
    // @ts-expect-error: tools is a setting here
    await this.tools.notes.find({ q: "x" });
  }
}

export class Wrong extends ChatAgent {
  // @ts-expect-error: a list is wanted
  tools = "notes.*";
}
