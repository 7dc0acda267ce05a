// The page of the chat room: who is there and the topic are the room's shared state, what is said comes as messages.
import { connect } from "../../sdk/client-js/index.js";

const $ = (id) => document.getElementById(id);
const note = (text) => ($("note").textContent = text);

$("enter").addEventListener("submit", (submit) => {
  submit.preventDefault();
  const { url, token, room: key, who } = Object.fromEntries(new FormData(submit.target));
  const room = connect({ url, agent: "room", key, token });
  let last = 0; // the newest line that is shown

  const show = (line) => {
    if (line.id <= last) return;
    last = line.id;
    const item = document.createElement("li");
    item.textContent = `${line.who}: ${line.text}`;
    $("lines").append(item);
  };

  // Each time it is connected, anew too: says who it is, and asks for what it has not seen.
  room.on("open", async () => {
    room.send(who);
    note("");
    try {
      (await room.call("history", { after: last })).forEach(show);
    } catch (e) {
      note(e.message);
    }
  });
  room.on("message", (text) => show(JSON.parse(text)));
  room.on("error", (e) => note(e.message));
  room.on("close", ({ final, reason }) => note(final ? `closed: ${reason}` : "the connection is lost; it will be back"));
  room.on("state", (state) => {
    $("topic").textContent = state?.topic ?? key;
    $("people").textContent = state?.people?.join(", ") || "nobody";
  });

  $("enter").hidden = true;
  $("say").hidden = false;
  $("say").addEventListener("submit", async (submit) => {
    submit.preventDefault();
    const input = submit.target.elements.text;
    const topic = /^\/topic (.*)/.exec(input.value)?.[1];
    try {
      if (topic !== undefined) await room.setState((state) => ({ ...state, topic }));
      else room.send(input.value);
      input.value = "";
    } catch (e) {
      note(e.message); // refused: the state is what it was
    }
  });
});
