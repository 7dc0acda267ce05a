import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent, sandbox } from "./index.js";
import { FakeHost } from "./testing.js";

class Coder extends Agent {
  async run({ task, options }) {
    const box = await this.sandbox.open();
    await box.repo({ url: "https://example.com/x.git" });
    const done = await box.work(task, options);
    return { ...done, diff: await box.diff() };
  }
}

test("a CLI works, and asks", async () => {
  const asked = [];
  const host = new FakeHost({
    sandbox: {
      files: { "a.txt": "old" },
      cli: async (text, cli) => {
        const refused = await Promise.all([cli.write("a.txt", "new"), cli.write("b.txt", "more"), cli.permit("run", { command: "rm -rf /" })]);
        return `${text}: ${refused.map((r) => r ?? "ok").join(", ")}`;
      },
    },
    approve: ({ calls: [c] }) => {
      asked.push(c.tool);
      return c.args.command === undefined && c.args.path !== "b.txt";
    },
  });
  const out = await host.start(Coder, "run", { task: "go" }).result;
  const denied = (tool) => `the call of ${tool} was not approved: a person has denied it`;
  assert.equal(out.text, `go: ok, ${denied("cli.edit")}, ${denied("cli.run")}`);
  assert.equal(out.status, "completed");
  assert.equal(out.session, "session");
  assert.deepEqual(out.usage, { input: 1, cacheRead: 0, cacheWrite: 0, output: 1, reasoning: 0 });
  assert.deepEqual(out.diff.changed.map((c) => `${c.op} ${c.path}`), ["change a.txt"]);
  assert.equal(new TextDecoder().decode(host.files.get(out.diff.patch).body), "change a.txt\n");
  assert.deepEqual(asked.sort(), ["cli.edit", "cli.edit", "cli.run"]);
  assert.equal(host.sandbox.files.has("b.txt"), false); // a refusal leaves nothing
});

test("a CLI asks a person", async () => {
  const cli = async (_, { ask }) => ask("Which?", ["red", "blue"]);
  const one = new FakeHost({ sandbox: { cli, answer: ({ options }) => options[1] } });
  assert.equal((await one.start(Coder, "run", { task: "go" }).result).text, "blue");
  const none = new FakeHost({ sandbox: { cli } });
  assert.match((await none.start(Coder, "run", { task: "go" }).result).text, /^nobody can be asked/);
});

test("a turn fails", async () => {
  const host = new FakeHost({ sandbox: { cli: () => { throw new Error("no model"); } } });
  const out = await host.start(Coder, "run", { task: "go", options: { resume: "before", images: ["x.png"] } }).result;
  assert.equal(out.status, "failed");
  assert.equal(out.fault.message, "no model");
  assert.deepEqual(host.sandbox.prompts, [{ text: "go", resume: "before", images: ["x.png"] }]);
});

test("files and programs", async () => {
  const agent = {
    async run() {
      const box = await sandbox.open();
      await box.write("a/b.json", { n: 1 });
      await box.write("c.bin", new Uint8Array([0, 255]));
      const { stdout, code } = await box.exec("wc -c c.bin");
      const saved = await box.checkpoint("a");
      await box.delete("a", { recursive: true });
      const left = (await box.list()).map((f) => f.path);
      await box.restore(saved);
      const { paths } = await box.attach("in.txt");
      return [stdout, code, left, (await box.read("a/b.json", { as: "json" })).n, [...(await box.read("c.bin", { as: "bytes" }))], await box.read(paths[0], { offset: 1, length: 2 })];
    },
  };
  const host = new FakeHost({ sandbox: { exec: (command, { files }) => ({ stdout: `${files.get("c.bin").length}`, code: command === "wc -c c.bin" ? 0 : 1 }) }, files: { "in.txt": "text" } });
  assert.deepEqual(await host.start(agent, "run").result, ["2", 0, ["c.bin"], 1, [0, 255], "ex"]);
  assert.deepEqual(host.sandbox.ran, [["wc -c c.bin"]]);
});

test("a link to a port", async () => {
  const agent = { run: async (options) => (await sandbox.open()).preview(8000, options) };
  const host = new FakeHost({ sandbox: {} });
  const hour = await host.start(agent, "run").result;
  assert.equal(hour.url, "http://localhost/preview/8000/");
  const { expires } = await host.start(agent, "run", { lasts: 60_000 }).result;
  assert.equal(new Date(hour.expires) - new Date(expires), 59 * 60_000);
});

test("mistakes are told", async () => {
  await assert.rejects(new FakeHost().start({ run: () => sandbox.open() }, "run").result, { kind: "denied", message: /FakeHost/ });
  const host = new FakeHost({ sandbox: {} });
  const wrong = async (use, message) => assert.rejects(host.start({ run: async () => use(await sandbox.open()) }, "run").result, message);
  await wrong((box) => box.exec([]), /the command is a line for sh/);
  await wrong((box) => box.read(""), /the path is a text/);
  await wrong((box) => box.read("a", { as: "xml" }), /"text", "bytes" or "json"/);
  await wrong((box) => box.write("a", undefined), /give text, bytes/);
  await wrong((box) => box.work(""), /is a text/);
  await wrong((box) => box.read("gone"), { kind: "not_found" });
  await wrong((box) => box.preview("80"), /the port is a number/);
  await wrong((box) => box.preview(65536), { kind: "invalid", message: /65536 is no port/ });
  await wrong((box) => box.preview(80, { lasts: 1 }), { kind: "invalid", message: /from a second to a day/ });
  await wrong((box) => box.work("go"), { kind: "denied" });
});
