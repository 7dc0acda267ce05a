// Makes the request that its input names, by the AssemblyScript SDK.
import * as skep from "../../../../sdk/as/index";

export function ask(): i32 {
  const request = new skep.Request(skep.inputText(), "POST").header("authorization", "Bearer " + skep.secret("api")).header("x-two", "2");
  request.body = Uint8Array.wrap(String.UTF8.encode("b\0d"));
  const r = skep.fetch(request);
  if (!r.ok) return skep.fail(r.kind + ": " + r.error);
  return skep.outputText(
    r.status.toString() + " " + r.body.length.toString() + " " + r.text() + " " + (r.headers.includes('["x-a","1"]') ? "1" : "0"),
  );
}

export function name(): i32 {
  return skep.outputText(skep.secret(skep.inputText()));
}
