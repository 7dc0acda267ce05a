// The client of OpenAI: chat completions and responses.
import OpenAI from 'openai';
import { key, maxTokens, pixel, prompt, result, run, seen, system, tools, url } from './common.mjs';

const chatUsage = (u) => [u.prompt_tokens, u.prompt_tokens_details?.cached_tokens ?? 0, u.prompt_tokens_details?.cache_write_tokens ?? 0, u.completion_tokens, u.completion_tokens_details?.reasoning_tokens ?? 0];
const responseUsage = (u) => [u.input_tokens, u.input_tokens_details?.cached_tokens ?? 0, u.input_tokens_details?.cache_write_tokens ?? 0, u.output_tokens, u.output_tokens_details?.reasoning_tokens ?? 0];

const chat = async (client, cell, out) => {
  const content = cell.kind === 'image' ? [{ type: 'text', text: prompt }, { type: 'image_url', image_url: { url: `data:image/png;base64,${pixel}` } }] : prompt;
  const messages = [{ role: 'system', content: system }, { role: 'user', content }];
  const ask = { model: cell.model, messages };
  if (cell.tools) ask.tools = tools.map((t) => ({ type: 'function', function: t }));
  if (cell.kind === 'reasoning') ask.reasoning_effort = 'medium';
  for (;;) {
    let message, finish, usage;
    let thought = '';
    if (!cell.stream) {
      const r = await client.chat.completions.create(ask);
      ({ message, finish_reason: finish } = r.choices[0]);
      usage = r.usage;
      thought = message.reasoning_content ?? '';
    } else if (cell.kind === 'tools' || cell.kind === 'parallel' || cell.kind === 'reasoning') { // by the helper, which has no place for what it does not know
      const s = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
      s.on('chunk', (c) => { thought += c.choices[0]?.delta?.reasoning_content ?? ''; });
      const r = await s.finalChatCompletion();
      ({ message, finish_reason: finish } = r.choices[0]);
      message = { role: 'assistant', content: message.content, tool_calls: message.tool_calls?.map(({ id, type, function: f }) => ({ id, type, function: { name: f.name, arguments: f.arguments } })) };
      usage = r.usage;
    } else {
      const asked = cell.kind !== 'length'; // one of the two asks for no usage, and gets none
      const s = await client.chat.completions.create({ ...ask, stream: true, ...(asked && { stream_options: { include_usage: true } }) });
      for await (const c of s) {
        usage = c.usage ?? usage;
        if (c.choices.length === 0 && !asked) out.empty++;
        out.partial += c.choices[0]?.delta?.content ?? '';
        finish = c.choices[0]?.finish_reason ?? finish;
        if (out.partial) seen(cell);
        if (cell.kind === 'abort' && out.partial) s.controller.abort();
      }
      message = { content: out.partial };
      if (!asked) {
        if (usage) throw new Error('usage came that was not asked for');
        usage = { prompt_tokens: 100, prompt_tokens_details: { cached_tokens: 20, cache_write_tokens: cell.cell.includes('.gemini.') ? 0 : 30 }, completion_tokens: 50, completion_tokens_details: { reasoning_tokens: 15 } };
      }
      if (cell.kind === 'abort') return;
    }
    const calls = message.tool_calls ?? [];
    out.steps.push({ text: message.content ?? '', thought, calls: calls.map((c) => [c.function.name, c.function.arguments]), finish, usage: chatUsage(usage) });
    if (calls.length === 0) return;
    messages.push(message, ...calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: result(c.function.name) })));
  }
};

const responses = async (client, cell, out) => {
  const content = [{ type: 'input_text', text: prompt }];
  if (cell.kind === 'image') content.push({ type: 'input_image', image_url: `data:image/png;base64,${pixel}`, detail: 'auto' });
  const input = [{ role: 'user', content }];
  const ask = { model: cell.model, instructions: system, input, store: false, max_output_tokens: maxTokens };
  if (cell.tools) ask.tools = tools.map((t) => ({ type: 'function', strict: false, ...t }));
  if (cell.kind === 'reasoning') Object.assign(ask, { reasoning: { effort: 'medium', summary: 'auto' }, include: ['reasoning.encrypted_content'] });
  for (;;) {
    let r;
    if (!cell.stream) {
      r = await client.responses.create(ask);
    } else if (cell.tools) {
      r = await client.responses.stream(ask).finalResponse();
    } else {
      const s = await client.responses.create({ ...ask, stream: true });
      for await (const e of s) {
        if (e.type === 'response.output_text.delta') out.partial += e.delta;
        if (e.type === 'response.completed' || e.type === 'response.incomplete') r = e.response;
        if (e.type === 'response.failed') throw new Error(e.response.error.message);
        if (e.type === 'error') throw new Error(e.message); // as the provider says it; the client itself does not throw then
        if (out.partial) seen(cell);
        if (cell.kind === 'abort' && out.partial) s.controller.abort();
      }
      if (cell.kind === 'abort') return;
      if (r === undefined) return;
      if (r.output_text === undefined) r.output_text = r.output.flatMap((o) => (o.type === 'message' ? o.content : [])).map((c) => c.text).join('');
    }
    const calls = r.output.filter((o) => o.type === 'function_call');
    out.steps.push({
      text: r.output_text, thought: r.output.filter((o) => o.type === 'reasoning').flatMap((o) => o.summary).map((s) => s.text).join(''),
      calls: calls.map((c) => [c.name, c.arguments]), finish: r.status, usage: responseUsage(r.usage),
    });
    if (calls.length === 0) return;
    input.push(...r.output.map(({ parsed_arguments, ...o }) => o), ...calls.map((c) => ({ type: 'function_call_output', call_id: c.call_id, output: result(c.name) })));
  }
};

await run(async (cell, out, fetch) => {
  const client = new OpenAI({ apiKey: key, baseURL: `${url}/v1`, fetch });
  await (cell.client === 'chat' ? chat : responses)(client, cell, out);
});
