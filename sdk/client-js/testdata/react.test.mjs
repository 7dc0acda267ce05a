import assert from "node:assert/strict";
import { test } from "node:test";
import { createElement } from "react";
import { act, create } from "react-test-renderer";
import WebSocket from "ws";
import { useAgent } from "agents/react";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
const host = process.env.SKEP_URL.replace("http://", "");
const token = await (await fetch(`${process.env.SKEP_CONTROL}/token`)).text();

let agent;
const states = [];

function Room() {
  agent = useAgent({ agent: "room", name: "react", host, protocol: "ws", query: { token }, WebSocket, onStateUpdate: (s) => states.push(s) });
  return createElement("p", null, JSON.stringify(agent.state ?? null));
}

test("useAgent", { timeout: 20_000 }, async () => {
  let root;
  await act(async () => { root = create(createElement(Room)); });
  const shown = async (text) => {
    while (root.toJSON()?.children?.[0] !== text) await act(() => new Promise((resolve) => setTimeout(resolve, 5)));
  };
  await act(() => agent.ready);
  await shown('{"count":0,"names":[]}');
  await act(async () => agent.setState({ count: 2, names: ["r"] }));
  await shown('{"count":2,"names":["r"]}');
  assert.equal(await agent.call("add", [3]), 5);
  await shown('{"count":5,"names":["r"]}');
  assert.equal(await agent.stub.both(1, 2), 3);
  assert.deepEqual(states.map((s) => s.count), [0, 2, 5]);
  await act(async () => root.unmount());
});
