import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent, SkepError, ToolError, files, skills, tools } from "./index.js";
import { FakeHost } from "./testing.js";

const box = (more = {}) => {
  const disk = new Map([["a.txt", "text"]]);
  const all = {
    "fs.read-file": ({ path }) => {
      if (!disk.has(path)) throw new Error(`no file ${path}`);
      return { content: disk.get(path) };
    },
    "fs.write": async ({ path, content }) => void disk.set(path, content),
    "fs.delete": ({ path }) => disk.delete(path),
    "mail.send": () => {
      throw new SkepError("denied", "policy says no", undefined, "ask Ada");
    },
  };
  all["fs.read-file"].description = "Reads a file.";
  all["fs.read-file"].effect = "read";
  return { disk, host: new FakeHost({ tools: all, ...more }) };
};

test("tools are called", async () => {
  const { host } = box();
  class Reader extends Agent {
    async read(path) {
      return [await this.tools.fs["read-file"]({ path }), await tools.fs.read_file({ path }), await tools.call("fs.read-file", { path, gone: undefined })].map((r) => r.content);
    }
  }
  assert.deepEqual(await host.call(Reader, "read", "a.txt"), ["text", "text", "text"]);
  assert.deepEqual(host.toolCalls, Array(3).fill({ tool: "fs.read-file", args: { path: "a.txt" } }));
});

test("errors of tools", async () => {
  const { host } = box();
  const agent = { ask: async ([name, args]) => tools.call(name, args) };
  await assert.rejects(host.call(agent, "ask", ["fs.read-file", { path: "x" }]), (e) => e instanceof ToolError && e instanceof SkepError && e.kind === "failed" && e.tool === "fs.read-file" && e.message === "no file x");
  await assert.rejects(host.call(agent, "ask", ["mail.send"]), { name: "ToolError", kind: "denied", message: "policy says no", hint: "ask Ada", tool: "mail.send" });
  await assert.rejects(host.call(agent, "ask", ["a.b"]), { kind: "denied", message: /FakeHost\({ tools }\)/ });
  await assert.rejects(host.call(agent, "ask", ["fs.write", { a: [1, { b: new Map() }] }]), { name: "TypeError", message: "tools.fs.write: arguments.a[1].b is a Map, which has no JSON form: use Object.fromEntries" });
  await assert.rejects(host.call(agent, "ask", ["fs.write", "a"]), TypeError);
  assert.equal(host.toolCalls.length, 2);
});

test("a call that nobody awaits is made", async () => {
  const { host, disk } = box();
  await host.call({ f: () => void tools.fs.write({ path: "late", content: "1" }) }, "f");
  assert.equal(disk.get("late"), "1");
});

test("a change is approved as a whole, and taken back", async () => {
  const agent = {
    f: (last) =>
      tools.change("Two files", [
        { tool: "fs.write", args: { path: "1", content: "one" }, undo: { tool: "fs.delete", args: { path: "1" } } },
        { tool: "fs.write", args: { path: "2", content: "two" } },
        { tool: last, args: { path: "none" } },
      ]),
  };
  let asked;
  const { host, disk } = box({ approve: (q) => ((asked ??= q), true) });
  await assert.rejects(host.call(agent, "f", "fs.read-file"), (e) => {
    assert.equal(e.message, "call 3 of 3, fs.read-file, failed: no file none; call 2, fs.write, was not undone: it has no undo; call 1, fs.write, was undone");
    assert.deepEqual(e.data, { failed: 3, undone: [{ call: 1, tool: "fs.write" }], kept: [{ call: 2, tool: "fs.write", why: "it has no undo" }] });
    return e.kind === "failed" && e.tool === "fs.read-file";
  });
  assert.deepEqual([...disk.keys()], ["a.txt", "2"]);
  assert.equal(asked.title, "Two files");
  assert.equal(asked.calls.length, 3);
  const refused = box({ approve: () => false });
  await assert.rejects(refused.host.call(agent, "f", "fs.delete"), { name: "ToolError", kind: "denied", tool: "" });
  assert.deepEqual(refused.host.toolCalls, []);
});

test("tools are found", async () => {
  const { host } = box();
  const agent = { f: async () => [(await tools.search("READ")).map((t) => t.name), (await tools.list({ server: "fs", limit: 2 })).more, await tools.describe("fs.*")] };
  assert.deepEqual(await host.call(agent, "f"), [["fs.read-file"], 1, 'tools.fs["read-file"](args: object): Promise<any>;\ntools.fs.write(args: object): Promise<any>;\ntools.fs.delete(args: object): Promise<any>;\n']);
});

test("instructions", async () => {
  const host = new FakeHost({ files: { "AGENTS.md": "Be brief.", "src/AGENTS.md": "Use tabs.", "docs/AGENTS.md": "Use words." } });
  const got = await host.call({ f: () => files.instructions("src/a.ts") }, "f");
  assert.deepEqual(got.files.map((f) => f.path), ["AGENTS.md", "src/AGENTS.md"]);
  assert.match(got.text, /Be brief\.[^]*file="src\/AGENTS.md">\nUse tabs\./);
  assert.deepEqual((await host.call({ f: () => files.instructions() }, "f")).files.length, 1);
});

test("files and skills", async () => {
  const host = new FakeHost({ files: { "a.json": '{"n":1}' }, skills: { pdf: "---\ndescription: Reads PDF\n---\nUse it.", more: { "SKILL.md": "x", "extra.md": "y" } } });
  const agent = {
    async f(_, ctx) {
      const made = await ctx.files.write("b.bin", new Uint8Array([1, 2, 3]), { type: "image/png" });
      return [await files.read("a.json", { as: "json" }), await files.read({ artifact: "b.bin" }, { as: "bytes", offset: 1 }), made, (await files.list()).length, await skills.list(), (await skills.load("more", "extra.md")).text];
    },
  };
  assert.deepEqual(await host.call(agent, "f"), [
    { n: 1 }, new Uint8Array([2, 3]), { path: "b.bin", type: "image/png", size: 3 }, 2, [{ name: "more", description: "" }, { name: "pdf", description: "Reads PDF" }], "y",
  ]);
  assert.equal(host.files.get("b.bin").type, "image/png");
  await assert.rejects(host.call({ f: () => files.read("none") }, "f"), { kind: "not_found" });
});

test("tools outside Skep say so", () => {
  assert.throws(() => tools.fs.read({}), /inside Skep only/);
  assert.throws(() => (tools.fs = 1), /cannot be changed/);
  assert.equal(tools.then, undefined);
});
