// Two people in a chat room, by a plain WebSocket and by skep-client, and a server that is killed in between. Prints "restart" when it
// wants that, goes on at a line of standard input, and ends with "ok".
import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";
import { connect } from "../../sdk/client-js/index.js";

const url = process.argv[2], token = process.env.TOKEN;
const WebSocket = globalThis.WebSocket ?? createRequire(new URL("../../sdk/client-js/package.json", import.meta.url))("ws");

// box keeps what comes until it is asked for.
function box() {
  const got = [];
  let wake = () => {};
  return {
    put(v) {
      got.push(v);
      wake();
    },
    async until(fits) {
      for (;;) {
        const i = got.findIndex(fits);
        if (i >= 0) return got.splice(0, i + 1).at(-1);
        await new Promise((resolve) => (wake = resolve));
      }
    },
  };
}

// A plain WebSocket, as any program has it.
const plain = box();
const socket = new WebSocket(`${url.replace("http", "ws")}/v1/agents/room/instances/lobby/ws`, ["skep", `skep.token.${token}`]);
socket.onmessage = (m) => plain.put(JSON.parse(m.data));
socket.onopen = () => socket.send("Bob");
await plain.until((f) => f.type === "cf_agent_state" && f.state.people.includes("Bob"));

// skep-client, as page.js uses it.
const lines = box(), states = box(), closes = box();
let last = 0;
const room = connect({ url, agent: "room", key: "lobby", token, WebSocket });
const show = (line) => {
  if (line.id <= last) return;
  last = line.id;
  lines.put(line);
};
room.on("open", async () => {
  room.send("Ada");
  (await room.call("history", { after: last })).forEach(show);
});
room.on("message", (text) => show(JSON.parse(text)));
room.on("state", (state) => states.put(structuredClone(state)));
room.on("close", (close) => closes.put(close));

await lines.until((l) => l.text === "anybody here?"); // from before it came
await states.until((s) => s.people.join() === "Ada,Bob");
socket.send("hello");
assert.equal((await lines.until((l) => l.text === "hello")).who, "Bob");
await room.setState((s) => ({ ...s, topic: "bees" }));
await plain.until((f) => f.type === "cf_agent_state" && f.state.topic === "bees");
await assert.rejects(room.setState((s) => ({ ...s, topic: "x".repeat(81) })), /80 characters/);
await assert.rejects(room.setState((s) => ({ ...s, people: [] })), /only the room/);
assert.equal(room.state.topic, "bees");

console.log("restart");
await closes.until(() => true);
await once(process.stdin, "data");
await lines.until((l) => l.text === "I was quick"); // said before it was back
await states.until((s) => s.people.join() === "Ada" && s.topic === "bees"); // the plain one stays away
room.send("welcome back");
await lines.until((l) => l.text === "welcome back");
room.close();
console.log("ok");
process.exit(0);
