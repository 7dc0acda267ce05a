// Reads an answer, a stream and a broken stream of a server with the clients of one protocol, and prints what each understood, as JSON.
import OpenAI from 'openai';
import { generateText, jsonSchema, streamText, tool } from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

const [protocol, url] = process.argv.slice(2);
const out = {};
const openai = (mode) => new OpenAI({ apiKey: 'x', baseURL: `${url}/${mode}`, maxRetries: 0 });
const attempt = async (name, f) => {
  try {
    out[name] = await f();
  } catch (e) {
    out[name] = { error: e.message };
  }
};
const chatCalls = (m) => m.tool_calls.map((c) => [c.id, c.function.name, c.function.arguments]);
const responseCalls = (r) => r.output.filter((o) => o.type === 'function_call').map((o) => [o.call_id, o.name, o.arguments]);
const messages = [{ role: 'user', content: 'hi' }];

if (protocol === 'chat') {
  const chat = (mode) => openai(mode).chat.completions;
  const understood = (r) => ({ text: r.choices[0].message.content, calls: chatCalls(r.choices[0].message), input: r.usage.prompt_tokens });
  await attempt('openai', async () => understood(await chat('whole').create({ model: 'm', messages })));
  await attempt('openai stream', async () => understood(await chat('stream').stream({ model: 'm', messages, stream_options: { include_usage: true } }).finalChatCompletion()));
  await attempt('openai broken', async () => {
    for await (const _ of await chat('broken').create({ model: 'm', messages, stream: true }));
    return {};
  });
} else {
  const responses = (mode) => openai(mode).responses;
  const understood = (r) => ({ text: r.output_text, calls: responseCalls(r), input: r.usage.input_tokens });
  await attempt('openai', async () => understood(await responses('whole').create({ model: 'm', input: 'hi' })));
  await attempt('openai stream', async () => understood(await responses('stream').stream({ model: 'm', input: 'hi' }).finalResponse()));
  await attempt('openai broken', async () => {
    for await (const _ of await responses('broken').create({ model: 'm', input: 'hi', stream: true }));
    return {};
  });
}

const tools = Object.fromEntries(['look', 'none'].map((name) => [name, tool({ inputSchema: jsonSchema({ type: 'object', properties: {} }) })]));
const models = protocol === 'chat'
  ? { 'ai chat': (baseURL) => createOpenAI({ apiKey: 'x', baseURL }).chat('m'), 'ai compatible': (baseURL) => createOpenAICompatible({ name: 'x', apiKey: 'x', baseURL, includeUsage: true })('m') }
  : { 'ai responses': (baseURL) => createOpenAI({ apiKey: 'x', baseURL }).responses('m') };
for (const [name, model] of Object.entries(models)) {
  const options = (mode) => ({ model: model(`${url}/${mode}`), prompt: 'hi', tools, maxRetries: 0, onError() {} });
  const understood = async (r) => ({ text: await r.text, calls: (await r.toolCalls).map((c) => [c.toolCallId, c.toolName, JSON.stringify(c.input)]), input: (await r.usage).inputTokens });
  await attempt(name, async () => understood(await generateText(options('whole'))));
  await attempt(`${name} stream`, async () => understood(streamText(options('stream'))));
  await attempt(`${name} broken`, async () => {
    for await (const p of streamText(options('broken')).fullStream) if (p.type === 'error') throw p.error.message ? p.error : new Error(p.error);
    return {};
  });
}
console.log(JSON.stringify(out));
