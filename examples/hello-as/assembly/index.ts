// A small agent in AssemblyScript. See the README for how to push and call it.
import { config, emit, fail, info, inputText, json, outputText } from "../../../sdk/as/index";

export function greet(): i32 {
  const name = json.text(inputText(), "name");
  if (name === null || name.trim().length == 0) return fail("whom shall I greet? give a name");
  const word = config("word");
  info("greeting " + name.trim());
  return outputText('{"text":' + json.quote((word === null ? "Hello" : word) + ", " + name.trim() + "!") + "}");
}

/** Emits an event for each number on its way to zero. */
export function countdown(): i32 {
  for (let n = i32(json.parse(inputText())); n > 0; n--) {
    const r = emit("tick", n.toString());
    if (!r.ok) return fail(r.text);
  }
  return outputText("liftoff");
}
