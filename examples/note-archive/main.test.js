// Tests of the agent without a server: `go test ./examples -run TestUnits` runs them, and so does any runtime that knows TypeScript.
import assert from "node:assert/strict";
import { test } from "node:test";

import { FakeHost } from "skep/testing";
import NoteArchive from "./main.ts";

// notes plays the MCP server over a Map.
function notes(more = {}) {
  const disk = new Map([
    ["/n/a.md", "# Alpha\nstatus: done\nOne two"],
    ["/n/b.md", "Three four five"],
    ["/n/c.md", "# Gamma\nstatus: done\n"],
  ]);
  const tools = {
    "notes.search_files": ({ path }) => ({ content: [...disk.keys()].filter((p) => p.startsWith(path)).join("\n") || "No matches found" }),
    "notes.read_text_file": async ({ path }) => ({ content: disk.get(path) }),
    "notes.move_file": ({ source, destination }) => {
      if (disk.has(destination)) throw new Error(`${destination} is there already`);
      disk.set(destination, disk.get(source));
      disk.delete(source);
      return { content: "moved" };
    },
    "files.write": ({ path, text, type }) => ({ path, type, size: text.length }),
  };
  return { disk, host: new FakeHost({ tools, ...more }) };
}

test("a report", async () => {
  const { host } = notes();
  assert.deepEqual(await host.call(NoteArchive, "report", { dir: "/n" }), { notes: 3, file: "report.md" });
  const written = host.toolCalls.find((c) => c.tool === "files.write").args;
  assert.equal(written.text, "| note | words | |\n|---|---|---|\n| Alpha | 6 | done |\n| b.md | 3 | open |\n| Gamma | 4 | done |\n");
  assert.deepEqual(await host.call(NoteArchive, "report", { dir: "/none" }), { notes: 0, file: "report.md" });
});

test("an archive that was agreed to", async () => {
  const asked = [];
  const { disk, host } = notes({ approve: ({ title, calls }) => (title !== undefined && asked.push([title, calls.length]), true) });
  const { moved } = await host.call(NoteArchive, "archive", { dir: "/n" });
  assert.deepEqual(moved, ["/n/archive/a.md", "/n/archive/c.md"]);
  assert.deepEqual([...disk.keys()].sort(), ["/n/archive/a.md", "/n/archive/c.md", "/n/b.md"]);
  assert.deepEqual(asked, [["Archive 2 of the notes in /n", 2]]);
  assert.deepEqual(host.events, [{ name: "archived", data: { notes: ["Alpha", "Gamma"] } }]);
  assert.deepEqual(await host.call(NoteArchive, "archive", { dir: "/n" }), { moved: [] });
});

test("an archive that was refused", async () => {
  const { disk, host } = notes({ approve: ({ title }) => title === undefined });
  assert.deepEqual(await host.call(NoteArchive, "archive", { dir: "/n" }), { moved: [], why: "the question was answered with no" });
  assert.equal(disk.size, 3);
  assert.deepEqual(host.events, []);
});

test("a move that fails is taken back", async () => {
  const { disk, host } = notes();
  disk.set("/old/c.md", "there");
  await assert.rejects(host.call(NoteArchive, "archive", { dir: "/n", to: "/old" }), (e) => {
    assert.match(e.message, /^call 2 of 2, notes.move_file, failed: .*; call 1, notes.move_file, was undone$/);
    return e.name === "ToolError" && e.kind === "failed";
  });
  assert.deepEqual([...disk.keys()].sort(), ["/n/a.md", "/n/b.md", "/n/c.md", "/old/c.md"]);
});

test("a message", async () => {
  const { host } = notes();
  assert.equal(await host.call(NoteArchive, "onMessage", { role: "user", content: "/n " }), "1 open: b.md");
});
