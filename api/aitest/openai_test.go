package aitest

import (
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Each turn uses 100 tokens of input, of which 20 came from the cache and 30 went to it (Gemini tells of none), and 50 of output, of which 15 are thoughts.
const (
	chatUsage     = `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":20,"cache_write_tokens":30},"completion_tokens_details":{"reasoning_tokens":15}}`
	responseUsage = `{"input_tokens":100,"input_tokens_details":{"cached_tokens":20,"cache_write_tokens":30},"output_tokens":50,"output_tokens_details":{"reasoning_tokens":15},"total_tokens":150}`
)

var openAIFaults = map[string]fault{
	"429":   {429, "Retry-After-Ms: 5", `{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
	"529":   {503, "", `{"error":{"message":"The engine is overloaded","type":"server_error","param":null,"code":"server_is_overloaded"}}`},
	"quota": {429, "", `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`},
}

var chatVendor = &vendor{
	name: "chat", protocol: agent.ChatProtocol, base: "/v1", path: "/chat/completions", stream: "/chat/completions", model: "open-model",
	whole: chatWhole, frames: chatFrames, check: chatCheck, faults: openAIFaults,
	broken: "data: {\"error\":{\"message\":\"trouble in the middle\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n",
	image: func(body map[string]any) (string, string) {
		for _, m := range list(body, "messages") {
			for _, p := range list(m, "content") {
				if typ, data, ok := dataURL(text(p, "image_url", "url")); ok {
					return typ, data
				}
			}
		}
		return "", ""
	},
}

func dataURL(s string) (typ, data string, ok bool) {
	s, ok = strings.CutPrefix(s, "data:")
	typ, data, found := strings.Cut(s, ";base64,")
	return typ, data, ok && found
}

func chatFinish(t turn) string {
	switch {
	case t.length:
		return "length"
	case len(t.calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func chatWhole(t turn, model string) string {
	var calls []string
	for _, c := range t.calls {
		calls = append(calls, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}`, c.id, c.name, quoted(c.args)))
	}
	more := ""
	if calls != nil {
		more = `,"tool_calls":[` + strings.Join(calls, ",") + `]`
	}
	if t.thought != "" {
		more += `,"reasoning_content":` + quoted(t.thought)
	}
	return fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":%s,"refusal":null%s},"logprobs":null,"finish_reason":%q}],"usage":%s,"system_fingerprint":"fp"}`,
		model, orNull(t.text), more, chatFinish(t), chatUsage)
}

func chatFrames(t turn, body map[string]any, model string) (out []string) {
	use := at(body, "stream_options", "include_usage") == true
	null := ""
	if use {
		null = `,"usage":null`
	}
	frame := func(choices, more string) {
		out = append(out, fmt.Sprintf("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":%q,\"choices\":[%s]%s}\n\n", model, choices, more))
	}
	delta := func(d, finish string) {
		frame(fmt.Sprintf(`{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s}`, d, orNull(finish)), null)
	}
	delta(`"role":"assistant","content":"","refusal":null`, "")
	if t.thought != "" {
		for _, p := range pieces(t.thought) {
			delta(`"reasoning_content":`+quoted(p), "")
		}
	}
	if t.text != "" {
		for _, p := range pieces(t.text) {
			delta(`"content":`+quoted(p), "")
		}
	}
	for i, c := range t.calls {
		delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":""}}]`, i, c.id, c.name), "")
	}
	for half := range 2 { // pieces of parallel calls come in turns
		for i, c := range t.calls {
			delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"function":{"arguments":%s}}]`, i, quoted(pieces(c.args)[half])), "")
		}
	}
	delta("", chatFinish(t))
	if use {
		frame("", `,"usage":`+chatUsage)
	}
	return append(out, "data: [DONE]\n\n")
}

func chatCheck(body map[string]any, before []turn) error {
	msgs := list(body, "messages")
	i := 0
	next := func(role string) any {
		for ; i < len(msgs); i++ {
			if m := msgs[i]; text(m, "role") == role {
				i++
				return m
			}
		}
		return nil
	}
	for n, t := range before {
		m := next("assistant")
		calls := list(m, "tool_calls")
		if len(calls) != len(t.calls) {
			return fmt.Errorf("turn %d has %d calls", n, len(calls))
		}
		if t.text != "" && text(m, "content") != t.text && text(m, "content", 0, "text") != t.text {
			return fmt.Errorf("turn %d lost its text", n)
		}
		for j, c := range t.calls {
			if text(calls[j], "function", "name") != c.name || !sameArgs(text(calls[j], "function", "arguments"), c.args) || text(calls[j], "id") != c.id {
				return fmt.Errorf("turn %d, call %d is %s", n, j, jsonOf(calls[j]))
			}
		}
		for range t.calls {
			m := next("tool")
			found := false
			for _, c := range t.calls {
				found = found || text(m, "tool_call_id") == c.id && strings.Contains(jsonOf(m), result(c.name))
			}
			if !found {
				return fmt.Errorf("turn %d has no result: %s", n, jsonOf(m))
			}
		}
	}
	return nil
}

var responseVendor = &vendor{
	name: "responses", protocol: agent.ResponseProtocol, base: "/v1", path: "/responses", stream: "/responses", model: "gpt-5.1",
	whole: func(t turn, model string) string { return responseObject(t, model, responseStatus(t)) }, frames: responseFrames, check: responseCheck, faults: openAIFaults,
	broken: "event: error\ndata: {\"type\":\"error\",\"sequence_number\":99,\"code\":\"server_error\",\"message\":\"trouble in the middle\",\"param\":null}\n\n",
	image: func(body map[string]any) (string, string) {
		for _, m := range list(body, "input") {
			for _, p := range list(m, "content") {
				if typ, data, ok := dataURL(text(p, "image_url")); ok {
					return typ, data
				}
			}
		}
		return "", ""
	},
}

func responseStatus(t turn) string {
	if t.length {
		return "incomplete"
	}
	return "completed"
}

// item is one of a response's output, and the events with which a stream tells it.
type item struct{ began, whole, events string }

func items(t turn) (out []item) {
	ev := func(n int, typ, more string) string {
		return fmt.Sprintf("event: %s\ndata: {\"type\":%q,\"sequence_number\":%d%s}\n\n", typ, typ, n, more)
	}
	if t.thought != "" {
		at := fmt.Sprintf(`,"item_id":"rs_%s","output_index":%d,"summary_index":0`, t.sign, len(out))
		events := ev(0, "response.reasoning_summary_part.added", at+`,"part":{"type":"summary_text","text":""}`)
		for _, p := range pieces(t.thought) {
			events += ev(0, "response.reasoning_summary_text.delta", at+`,"delta":`+quoted(p))
		}
		events += ev(0, "response.reasoning_summary_text.done", at+`,"text":`+quoted(t.thought)) +
			ev(0, "response.reasoning_summary_part.done", at+`,"part":{"type":"summary_text","text":`+quoted(t.thought)+`}`)
		out = append(out, item{
			fmt.Sprintf(`{"id":"rs_%s","type":"reasoning","summary":[],"encrypted_content":"begun"}`, t.sign),
			fmt.Sprintf(`{"id":"rs_%s","type":"reasoning","summary":[{"type":"summary_text","text":%s}],"encrypted_content":%q}`, t.sign, quoted(t.thought), t.sign), events,
		})
	}
	if t.text != "" {
		at := fmt.Sprintf(`,"item_id":"msg_%d","output_index":%d,"content_index":0`, len(t.text), len(out))
		part := `{"type":"output_text","annotations":[],"logprobs":[],"text":` + quoted(t.text) + `}`
		events := ev(0, "response.content_part.added", at+`,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}`)
		for _, p := range pieces(t.text) {
			events += ev(0, "response.output_text.delta", at+`,"logprobs":[],"delta":`+quoted(p))
			events += "\x00"
		}
		events += ev(0, "response.output_text.done", at+`,"logprobs":[],"text":`+quoted(t.text)) + ev(0, "response.content_part.done", at+`,"part":`+part)
		head := fmt.Sprintf(`{"id":"msg_%d","type":"message","role":"assistant","status":`, len(t.text))
		out = append(out, item{head + `"in_progress","content":[]}`, head + fmt.Sprintf(`%q,"content":[%s]}`, responseStatus(t), part), events})
	}
	for _, c := range t.calls {
		at := fmt.Sprintf(`,"item_id":"fc_%s","output_index":%d`, c.id, len(out))
		events := ""
		for _, p := range pieces(c.args) {
			events += ev(0, "response.function_call_arguments.delta", at+`,"delta":`+quoted(p))
		}
		events += ev(0, "response.function_call_arguments.done", at+`,"arguments":`+quoted(c.args))
		head := fmt.Sprintf(`{"id":"fc_%s","type":"function_call","call_id":%q,"name":%q,"status":`, c.id, c.id, c.name)
		out = append(out, item{head + `"in_progress","arguments":""}`, head + `"completed","arguments":` + quoted(c.args) + `}`, events})
	}
	return out
}

func responseObject(t turn, model, status string) string {
	output, usage, why := []string{}, "null", "null"
	if status != "in_progress" {
		for _, i := range items(t) {
			output = append(output, i.whole)
		}
		usage = responseUsage
	}
	if status == "incomplete" {
		why = `{"reason":"max_output_tokens"}`
	}
	return fmt.Sprintf(`{"id":"resp_1","object":"response","created_at":1700000000,"status":%q,"background":false,"error":null,"incomplete_details":%s,"instructions":null,"max_output_tokens":null,"model":%q,"output":[%s],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":false,"temperature":1,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled","usage":%s,"user":null,"metadata":{}}`,
		status, why, model, strings.Join(output, ","), usage)
}

func responseFrames(t turn, _ map[string]any, model string) (out []string) {
	frame := func(typ, more string) {
		out = append(out, fmt.Sprintf("event: %s\ndata: {\"type\":%q,\"sequence_number\":%d%s}\n\n", typ, typ, 0, more))
	}
	frame("response.created", `,"response":`+responseObject(t, model, "in_progress"))
	frame("response.in_progress", `,"response":`+responseObject(t, model, "in_progress"))
	for n, i := range items(t) {
		frame("response.output_item.added", fmt.Sprintf(`,"output_index":%d,"item":%s`, n, i.began))
		out = append(out, strings.Split(i.events, "\x00")...)
		frame("response.output_item.done", fmt.Sprintf(`,"output_index":%d,"item":%s`, n, i.whole))
	}
	frame("response."+responseStatus(t), `,"response":`+responseObject(t, model, responseStatus(t)))
	for i := range out { // numbers go up by one
		for strings.Contains(out[i], `"sequence_number":0`) {
			out[i] = strings.Replace(out[i], `"sequence_number":0`, fmt.Sprintf(`"sequence_number":%d`, i+1), 1)
		}
	}
	return out
}

func responseCheck(body map[string]any, before []turn) error {
	in := list(body, "input")
	i := 0
	next := func(typ, id string) any {
		for ; i < len(in); i++ {
			m := in[i]
			if text(m, "type") == typ && (id == "" || text(m, "call_id") == id) {
				i++
				return m
			}
		}
		return nil
	}
	for n, t := range before {
		if t.sign != "" {
			if m := next("reasoning", ""); text(m, "encrypted_content") != t.sign {
				return fmt.Errorf("turn %d has not the reasoning of %s before its call: %s", n, t.sign, jsonOf(m))
			}
		}
		said := ""
		for _, m := range in {
			if text(m, "role") == "assistant" {
				for _, p := range list(m, "content") {
					said += text(p, "text")
				}
			}
			if text(m, "type") == "item_reference" { // which stands for it, where the provider keeps it
				said += t.text
			}
		}
		if !strings.Contains(said, t.text) {
			return fmt.Errorf("turn %d lost its text", n)
		}
		from := i
		for _, c := range t.calls {
			i = from
			if m := next("function_call", c.id); text(m, "name") != c.name || !sameArgs(text(m, "arguments"), c.args) {
				return fmt.Errorf("turn %d has not the call %s: %s", n, c.id, jsonOf(m))
			}
			if m := next("function_call_output", c.id); !strings.Contains(jsonOf(m), result(c.name)) {
				return fmt.Errorf("turn %d has no result of %s: %s", n, c.id, jsonOf(m))
			}
		}
	}
	return nil
}
