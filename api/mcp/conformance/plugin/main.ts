// What the conformance suite of MCP calls. A function gets the request and returns a result of MCP, a plain value, or what it asks for.

import { emit, sleep } from "skep";

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const wav = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

type Asked = {
  name?: string; uri?: string; arguments?: any; variables?: Record<string, string>; inputResponses?: Record<string, any>; requestState?: string;
  progressToken?: string | number; client: { elicitation: boolean; sampling: boolean; roots: boolean };
};

const text = (s: string) => ({ type: "text", text: s });
const image = { type: "image", data: png, mimeType: "image/png" };
const embedded = (uri: string, s: string) => ({ type: "resource", resource: { uri, mimeType: "text/plain", text: s } });
const content = (...c: object[]) => ({ content: c });

const elicit = (message: string, properties: object, required?: string[]) => ({
  method: "elicitation/create", params: { mode: "form", message, requestedSchema: { type: "object", properties, ...(required && { required }) } },
});
const sample = (prompt: string, maxTokens: number) => ({
  method: "sampling/createMessage", params: { messages: [{ role: "user", content: text(prompt) }], maxTokens },
});
const roots = { method: "roots/list", params: {} };
const ask = (inputRequests: object, requestState?: string) => ({ resultType: "input_required", inputRequests, ...(requestState && { requestState }) });

const accepted = (q: Asked, id: string) => q.inputResponses?.[id]?.action === "accept" ? q.inputResponses[id].content : undefined;
const said = (q: Asked, id: string): string | undefined => {
  const c = q.inputResponses?.[id]?.content;
  return (Array.isArray(c) ? c[0] : c)?.text;
};
const name = { name: { type: "string" } };

export const test_simple_text = () => content(text("This is a simple text response for testing."));
export const test_image_content = () => content(image);
export const test_audio_content = () => content({ type: "audio", data: wav, mimeType: "audio/wav" });
export const test_embedded_resource = () => content(embedded("test://embedded-resource", "This is an embedded resource"));
export const test_multiple_content_types = () =>
  content(text("Multiple content types test:"), image, embedded("test://mixed-content-resource", "This is an embedded resource"));

export function test_tool_with_logging() {
  for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) emit("mcp.log", { level: "info", data });
  return content(text("Tool with logging executed successfully"));
}

export function test_tool_with_progress(q: Asked) {
  for (const progress of [0, 50, 100]) emit("mcp.progress", { progress, total: 100, message: `Completed step ${progress} of 100` });
  return content(text(String(q.progressToken)));
}

export function test_error_handling() {
  throw new Error("This tool intentionally returns an error for testing");
}

export function test_sampling(q: Asked) {
  const answer = said(q, "completion");
  return answer === undefined ? ask({ completion: sample(q.arguments.prompt, 100) }) : content(text(`LLM response: ${answer}`));
}

export function test_elicitation(q: Asked) {
  const r = q.inputResponses?.user;
  if (!r) {
    return ask({ user: elicit(q.arguments.message, { username: { type: "string", description: "User's response" }, email: { type: "string", description: "User's email address" } }, ["username", "email"]) });
  }
  return content(text(`User response: action=${r.action}, content=${JSON.stringify(r.content ?? {})}`));
}

export function test_elicitation_sep1034_defaults(q: Asked) {
  const r = q.inputResponses?.user;
  if (r) return content(text(`Elicitation completed: action=${r.action}, content=${JSON.stringify(r.content ?? {})}`));
  return ask({
    user: elicit("Please review and update the form fields with defaults", {
      name: { type: "string", description: "User name", default: "John Doe" },
      age: { type: "integer", description: "User age", default: 30 },
      score: { type: "number", description: "User score", default: 95.5 },
      status: { type: "string", description: "User status", enum: ["active", "inactive", "pending"], default: "active" },
      verified: { type: "boolean", description: "Verification status", default: true },
    }, []),
  });
}

export function test_elicitation_sep1330_enums(q: Asked) {
  const r = q.inputResponses?.user;
  if (r) return content(text(`Elicitation completed: action=${r.action}, content=${JSON.stringify(r.content ?? {})}`));
  const titled = (n: number) => ["First", "Second", "Third"].map((t, i) => ({ const: `value${i + 1}`, title: `${t} ${n === 1 ? "Option" : "Choice"}` }));
  return ask({
    user: elicit("Please select options from the enum fields", {
      untitledSingle: { type: "string", description: "Select one option", enum: ["option1", "option2", "option3"] },
      titledSingle: { type: "string", description: "Select one option with titles", oneOf: titled(1) },
      legacyEnum: { type: "string", description: "Select one option (legacy)", enum: ["opt1", "opt2", "opt3"], enumNames: ["Option One", "Option Two", "Option Three"] },
      untitledMulti: { type: "array", description: "Select multiple options", minItems: 1, maxItems: 3, items: { type: "string", enum: ["option1", "option2", "option3"] } },
      titledMulti: { type: "array", description: "Select multiple options with titles", minItems: 1, maxItems: 3, items: { anyOf: titled(2) } },
    }, []),
  });
}

export const json_schema_2020_12_tool = (q: Asked) => content(text(`JSON Schema 2020-12 tool called with: ${JSON.stringify(q.arguments)}`));

export async function test_reconnection() {
  emit("mcp.close_stream", {});
  await sleep("200ms");
  return content(text("Reconnection test completed successfully. If you received this, the client properly reconnected after stream closure."));
}

export const test_x_mcp_header = (q: Asked) => content(text(`region=${q.arguments.region}`));
export const test_missing_capability = () => content(text("The client can sample."));
export const test_streaming_elicitation = () => content(text("The stream has only this result."));

export function test_logging_tool() {
  emit("mcp.log", { level: "info", data: "test_logging_tool executed" });
  return content(text("Logged, for those who listen."));
}

export function test_trigger_tool_change() {
  emit("mcp.changed", "tools");
  return content(text("announced"));
}

export function test_trigger_prompt_change() {
  emit("mcp.changed", "prompts");
  return content(text("announced"));
}

export function test_input_required_result_elicitation(q: Asked) {
  const answer = accepted(q, "user_name");
  return typeof answer?.name === "string" ? content(text(`Hello, ${answer.name}!`)) : ask({ user_name: elicit("What is your name?", name, ["name"]) });
}

export function test_input_required_result_sampling(q: Asked) {
  const answer = said(q, "capital_question");
  return answer === undefined ? ask({ capital_question: sample("What is the capital of France?", 100) }) : content(text(`Sampling response: ${answer}`));
}

export function test_input_required_result_list_roots(q: Asked) {
  const list = q.inputResponses?.client_roots?.roots;
  return list ? content(text(`Client exposed ${list.length} root(s): ${list.map((r: any) => r.uri).join(", ")}`)) : ask({ client_roots: roots });
}

function confirmed(state: string) {
  return (q: Asked) => accepted(q, "confirm") && q.requestState === state
    ? content(text("state-ok: requestState received and confirmation accepted"))
    : ask({ confirm: elicit("Please confirm", { ok: { type: "boolean" } }, ["ok"]) }, state);
}
export const test_input_required_result_request_state = confirmed("request_state");
export const test_input_required_result_tampered_state = confirmed("tampered_state");

export function test_input_required_result_multiple_inputs(q: Asked) {
  const who = accepted(q, "user_name")?.name, greeting = said(q, "greeting"), list = q.inputResponses?.client_roots?.roots;
  if (who && greeting !== undefined && list) return content(text(`${greeting} ${who}, ${list.length} root(s) visible`));
  return ask({ user_name: elicit("What is your name?", name, ["name"]), greeting: sample("Generate a greeting", 50), client_roots: roots }, "multiple_inputs");
}

export function test_input_required_result_multi_round(q: Asked) {
  const state = q.requestState ? JSON.parse(q.requestState) : { round: 0 };
  switch (state.round) {
    case 0:
      return ask({ step1: elicit("Step 1: What is your name?", name, ["name"]) }, JSON.stringify({ round: 1 }));
    case 1:
      return ask({ step2: elicit("Step 2: What is your favorite color?", { color: { type: "string" } }, ["color"]) },
        JSON.stringify({ round: 2, name: accepted(q, "step1")?.name ?? "unknown" }));
  }
  return content(text(`Multi-round complete: ${state.name} likes ${accepted(q, "step2")?.color ?? "unknown"}`));
}

export function test_input_required_result_capabilities(q: Asked) {
  if (Object.keys(q.inputResponses ?? {}).length > 0) return content(text("The client gave what it can."));
  const asks = {
    ...(q.client.elicitation && { user_name: elicit("What is your name?", name, ["name"]) }),
    ...(q.client.sampling && { greeting: sample("Generate a short greeting", 50) }),
    ...(q.client.roots && { client_roots: roots }),
  };
  return Object.keys(asks).length > 0 ? ask(asks) : content(text("The client can be asked for nothing."));
}

const message = (c: object) => ({ role: "user", content: c });
export const test_simple_prompt = () => ({ messages: [message(text("This is a simple prompt for testing."))] });
export const test_prompt_with_arguments = (q: Asked) =>
  ({ messages: [message(text(`Prompt with arguments: arg1='${q.arguments.arg1}', arg2='${q.arguments.arg2}'`))] });
export const test_prompt_with_embedded_resource = (q: Asked) => ({
  messages: [message(embedded(q.arguments.resourceUri, "Embedded resource content for testing.")), message(text("Please process the embedded resource above."))],
});
export const test_prompt_with_image = () => ({ messages: [message(image), message(text("Please analyze the image above."))] });

export function test_input_required_result_prompt(q: Asked) {
  const answer = accepted(q, "user_context");
  if (answer) return { description: "A prompt with context", messages: [message(text(`Context: ${answer.context}`))] };
  return ask({ user_context: elicit("Please provide context for the prompt", { context: { type: "string" } }, ["context"]) });
}

export const staticText = () => "This is the content of the static text resource.";
export const staticBinary = (q: Asked) => ({ contents: [{ uri: q.uri, mimeType: "image/png", blob: png }] });
export const watched = () => "Watched resource content";
export const byId = (q: Asked) => ({ id: q.variables!.id, templateTest: true, data: `Data for ID: ${q.variables!.id}` });

export const complete = () => [];
