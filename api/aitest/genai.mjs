// The client of Google.
import { GoogleGenAI } from '@google/genai';
import { key, maxTokens, pixel, prompt, result, run, seen, system, tools, url } from './common.mjs';

const ai = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: url } });

await run(async (cell, out) => {
  const parts = [{ text: prompt }];
  if (cell.kind === 'image') parts.push({ inlineData: { mimeType: 'image/png', data: pixel } });
  const contents = [{ role: 'user', parts }];
  const config = { systemInstruction: system, maxOutputTokens: maxTokens };
  const gone = new AbortController();
  if (cell.kind === 'abort') config.abortSignal = gone.signal;
  if (cell.tools) config.tools = [{ functionDeclarations: tools.map(({ parameters, ...t }) => ({ ...t, parametersJsonSchema: parameters })) }];
  if (cell.kind === 'reasoning') config.thinkingConfig = { includeThoughts: true };
  for (;;) {
    const ask = { model: cell.model, contents, config };
    const said = [];
    let finish, usage;
    const take = (r) => {
      const c = r.candidates?.[0];
      said.push(...(c?.content?.parts ?? []));
      finish = c?.finishReason ?? finish;
      usage = r.usageMetadata ?? usage;
    };
    if (!cell.stream) {
      take(await ai.models.generateContent(ask));
    } else {
      try {
        for await (const r of await ai.models.generateContentStream(ask)) {
          take(r);
          out.partial = said.filter((p) => !p.thought).map((p) => p.text ?? '').join('');
          seen(cell);
          if (cell.kind === 'abort') gone.abort();
        }
      } catch (e) {
        if (cell.kind === 'abort' && e.name === 'AbortError') return;
        throw e;
      }
      if (finish === undefined) return; // the client itself does not tell
    }
    const calls = said.filter((p) => p.functionCall).map((p) => p.functionCall);
    out.steps.push({
      text: said.filter((p) => !p.thought).map((p) => p.text ?? '').join(''), thought: said.filter((p) => p.thought).map((p) => p.text).join(''),
      calls: calls.map((c) => [c.name, JSON.stringify(c.args ?? {})]), finish,
      usage: [usage.promptTokenCount, usage.cachedContentTokenCount ?? 0, 0, usage.candidatesTokenCount, usage.thoughtsTokenCount ?? 0],
    });
    if (calls.length === 0) return;
    contents.push({ role: 'model', parts: said }, { role: 'user', parts: calls.map((c) => ({ functionResponse: { id: c.id, name: c.name, response: { output: result(c.name) } } })) });
  }
});
