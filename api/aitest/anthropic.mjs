// The client of Anthropic.
import Anthropic from '@anthropic-ai/sdk';
import { key, maxTokens, pixel, prompt, result, run, seen, system, tools, url } from './common.mjs';

await run(async (cell, out, fetch) => {
  const client = new Anthropic({ apiKey: key, baseURL: url, fetch });
  const content = cell.kind === 'image' ? [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: pixel } }, { type: 'text', text: prompt }] : prompt;
  const messages = [{ role: 'user', content }];
  const ask = { model: cell.model, max_tokens: maxTokens, system, messages };
  if (cell.tools) ask.tools = tools.map(({ parameters, ...t }) => ({ ...t, input_schema: parameters }));
  if (cell.kind === 'reasoning') ask.thinking = { type: 'enabled', budget_tokens: 2048 };
  for (;;) {
    let m;
    if (!cell.stream) {
      m = await client.messages.create(ask);
    } else {
      const s = client.messages.stream(ask);
      s.on('text', (text) => {
        out.partial += text;
        seen(cell);
        if (cell.kind === 'abort') s.abort();
      });
      try {
        m = await s.finalMessage();
      } catch (e) {
        if (cell.kind === 'abort' && e instanceof Anthropic.APIUserAbortError) return;
        throw e;
      }
    }
    const of = (type) => m.content.filter((b) => b.type === type);
    const calls = of('tool_use');
    const u = m.usage;
    out.steps.push({
      text: of('text').map((b) => b.text).join(''), thought: of('thinking').map((b) => b.thinking).join(''), calls: calls.map((c) => [c.name, JSON.stringify(c.input)]),
      finish: m.stop_reason, usage: [u.input_tokens, u.cache_read_input_tokens ?? 0, u.cache_creation_input_tokens ?? 0, u.output_tokens, u.output_tokens_details?.thinking_tokens ?? 0],
    });
    if (calls.length === 0) return;
    messages.push({ role: 'assistant', content: m.content }, { role: 'user', content: calls.map((c) => ({ type: 'tool_result', tool_use_id: c.id, content: result(c.name) })) });
  }
});
