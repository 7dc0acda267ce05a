// Tests of the agent without a server and without a model: `go test ./examples -run TestUnits` runs them, and so does any runtime that knows TypeScript.
import assert from "node:assert/strict";
import { test } from "node:test";

import { FakeHost } from "skep/testing";
import Shopper from "./main.ts";

const say = (host, content) => host.start(Shopper, "onMessage", { role: "user", content }).result;

test("two things at once", async () => {
  const host = new FakeHost({ models: [{ calls: [{ name: "add", args: { item: "milk" } }, { name: "add", args: { item: "bread" } }] }, "Noted."] });
  assert.equal(await say(host, "I need milk and bread."), "Noted.");
  assert.equal(await host.call(Shopper, "items"), "bread, milk");
  assert.deepEqual(host.modelCalls[0].tools.map((t) => t.name), ["add", "remove", "list"]);
});

test("writing is for the user to agree to", async () => {
  const wants = { calls: [{ name: "files_write", args: { path: "list.md", text: "- milk\n" } }] };
  const host = new FakeHost({ models: [wants, "No, then."], tools: { "files.write": () => ({}) }, approve: () => false });
  assert.equal(await say(host, "Write it down."), "No, then.");
  assert.deepEqual(host.toolCalls, []);
  const [result] = host.modelCalls[1].messages.at(-1).content;
  assert.equal(result.failed, true);
});
