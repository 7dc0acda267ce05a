import { Client, SkepError, connect } from "skep-client";

interface State { count: number }
class Counter {
  add(n: number): number { return n; }
  async name(): Promise<string> { return ""; }
}

const c = connect<State, Counter>({ url: "http://x", agent: "counter", token: async () => "t" });
export const sum: Promise<number> = c.call("add", 1);
export const name: Promise<string> = c.call("name");
// @ts-expect-error: it takes a number
void c.call("add", "1");
// @ts-expect-error: there is no such method
void c.call("nothing");
void c.setState((s) => ({ count: (s?.count ?? 0) + 1 }));
// @ts-expect-error: not the state
void c.setState({ n: 1 });
c.on("state", (s) => s?.count);
c.on("event", (e) => e.seq);
// @ts-expect-error: there is no such event
c.on("nothing", () => {});

export async function use(client: Client) {
  try {
    for await (const e of client.events({ run: "1" })) e.kind.length;
    const n = await client.call<number>("a", "double", 2);
    return n.toFixed();
  } catch (e) {
    if (e instanceof SkepError && e.kind === "conflict") return e.hint;
    // @ts-expect-error: there is no such kind
    if (e instanceof SkepError && e.kind === "nothing") return "";
    throw e;
  }
}

export async function talk(client: Client) {
  const chat = client.chat("assistant", { key: "ada" });
  for await (const p of chat.send([{ type: "text", text: "hi" }])) {
    switch (p.type) {
      case "text":
        p.text.length;
        break;
      case "approval":
        await chat.answer(p.approval, true, { scope: "run" });
        break;
      case "done":
        if (p.status !== "completed") throw p.error;
    }
    // @ts-expect-error: there is no such part
    if (p.type === "nothing") return;
  }
  // @ts-expect-error: neither text nor parts
  chat.send(1);
  return (await chat.messages()).filter((m) => m.role === "assistant" && m.done);
}

export async function count(client: Client) {
  let sum = 0;
  for await (const n of client.instance("room", "lobby").stream<number>("countTo", 3)) sum += n;
  return sum.toFixed();
}

export async function work(client: Client) {
  const box = client.sandbox(await client.sandboxes.open("coder"));
  for await (const out of box.stream(["make", "test"], { timeout: 60_000 })) {
    if (out.exit) return out.exit.code.toFixed();
    (out.stdout ?? "").length;
  }
  // @ts-expect-error: neither a line nor a program
  await box.exec(1);
  const bytes: Uint8Array = await box.files.read("a");
  await box.files.write("b", bytes, { mode: 0o755 });
  // @ts-expect-error: no content
  await box.files.write("b", { a: 1 });
  return (await box.changes()).changed.map((c) => c.path).join() + (await box.link(8000)).url;
}
