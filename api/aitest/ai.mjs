// The AI SDK with its providers of OpenAI, Anthropic and Google. It makes the steps of a loop of tools itself.
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';
import { key, maxTokens, pixel, prompt, result, run, seen, system, tools, url } from './common.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const models = {
  'ai-chat': (fetch) => createOpenAI({ apiKey: key, baseURL: `${url}/v1`, fetch }).chat,
  'ai-responses': (fetch) => createOpenAI({ apiKey: key, baseURL: `${url}/v1`, fetch }),
  'ai-messages': (fetch) => createAnthropic({ apiKey: key, baseURL: `${url}/v1`, fetch }),
  'ai-gemini': (fetch) => (model) => createGoogleGenerativeAI({ apiKey: key, baseURL: `${url}/v1beta`, fetch })(`models/${model}`),
};
const thinking = {
  openai: { reasoningEffort: 'medium', reasoningSummary: 'auto', forceReasoning: true, store: false },
  anthropic: { thinking: { type: 'enabled', budgetTokens: 2048 } },
  google: { thinkingConfig: { includeThoughts: true } },
};

await run(async (cell, out, fetch) => {
  const gone = new AbortController();
  const content = [{ type: 'text', text: prompt }];
  if (cell.kind === 'image') content.push({ type: 'image', image: pixel, mediaType: 'image/png' });
  const ask = { model: models[cell.client](fetch)(cell.model), system, messages: [{ role: 'user', content }], maxOutputTokens: maxTokens, stopWhen: stepCountIs(5), abortSignal: gone.signal };
  if (cell.tools) ask.tools = Object.fromEntries(tools.map((t) => [t.name, tool({ description: t.description, inputSchema: jsonSchema(t.parameters), execute: () => result(t.name) })]));
  if (cell.kind === 'reasoning') ask.providerOptions = thinking;
  if (cell.kind === 'stored') ask.providerOptions = { openai: { ...thinking.openai, store: undefined } };
  if (cell.kind === '429' || cell.kind === '529') ask.maxRetries = 0; // it heeds no x-should-retry; see quota for what comes of that
  let steps;
  if (!cell.stream) {
    ({ steps } = await generateText(ask));
  } else {
    const s = streamText({ ...ask, onError() {} });
    for await (const p of s.fullStream) {
      if (p.type === 'error') throw p.error instanceof Error ? p.error : new Error(JSON.stringify(p.error));
      if (p.type === 'text-delta') {
        out.partial += p.text;
        seen(cell);
        if (cell.kind === 'abort') gone.abort();
      }
    }
    if (cell.kind === 'abort') return;
    steps = await s.steps;
  }
  out.steps = steps.map((s) => ({
    text: s.text, thought: s.reasoningText ?? '', calls: s.toolCalls.map((c) => [c.toolName, JSON.stringify(c.input)]), finish: s.finishReason,
    usage: [s.usage.inputTokens, s.usage.inputTokenDetails.cacheReadTokens ?? 0, s.usage.inputTokenDetails.cacheWriteTokens ?? 0, s.usage.outputTokens, s.usage.outputTokenDetails.reasoningTokens ?? 0],
  }));
});
