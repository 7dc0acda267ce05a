// The state of an instance that its clients see.
import { TypeErrorClass, apply, parse, record, stringify } from "./primordials.js";
import { ask, deepFreeze } from "./durable.js";
import { refuseWhileLoading, state } from "./host.js";
import { handler, member, theInstance } from "./module.js";

// What is known of it: its version, its value, and how much the code had heard of its host by then. While the code runs and
// hears nothing, nobody else changes it.
let known;

// getState returns the state, frozen: what changes it is setState.
export function getState() {
  refuseWhileLoading("state");
  if (known === undefined || known.heard !== state.heard) {
    const s = parse(ask("shared.get", ""));
    if (known === undefined || known.version !== s.version) known = record({ version: s.version, value: s.version === 0 ? undefined : deepFreeze(s.state) });
    known.heard = state.heard;
  }
  if (known.version === 0) known.value ??= initial();
  return known.value;
}

// initial returns what the state is before anybody has set it.
function initial() {
  let v = member("initialState");
  if (typeof v === "function") v = apply(v, theInstance(), []);
  return v === undefined ? undefined : deepFreeze(parse(textOf(v, "initialState")));
}

function textOf(v, what) {
  const text = stringify(v);
  if (text === undefined) throw new TypeErrorClass(`${what}: ${typeof v} has no JSON form`);
  return text;
}

// setState sets the state, if the author's check lets it and nobody has changed it since the code saw it. source is the id of the
// connection that a change came by.
export function setState(next, source = "server", version = known?.version) {
  refuseWhileLoading("setState");
  const text = textOf(next, "setState");
  const value = deepFreeze(parse(text));
  const checked = handler("validateStateChange")?.(value, source);
  if (typeof checked?.then === "function") throw new TypeErrorClass("validateStateChange must not be async: it refuses a change by throwing at once");
  const answer = parse(ask("shared.set", `{"state":${text}${version === undefined ? "" : `,"if":${version}`}}`));
  known = record({ version: answer.version, value, heard: state.heard });
  return handler("onStateChanged")?.(value, source);
}

// beginState stores the initial state for the first client that connects, so that it can be shown.
export function beginState() {
  if (member("initialState") === undefined) return;
  const value = getState();
  if (known.version !== 0 || value === undefined) return;
  known.version = parse(ask("shared.set", `{"state":${stringify(value)},"if":0}`)).version;
}

export const stateVersion = () => known?.version;
