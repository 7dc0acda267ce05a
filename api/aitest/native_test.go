package aitest

import (
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
)

var messageVendor = &vendor{
	name: "messages", protocol: agent.MessageProtocol, path: "/v1/messages", stream: "/v1/messages", model: "claude-sonnet-4-5",
	whole: messageWhole, frames: messageFrames, check: messageCheck,
	faults: map[string]fault{
		"429":   {429, "Retry-After-Ms: 5", `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit reached"},"request_id":"req_1"}`},
		"529":   {529, "", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`},
		"quota": {429, "", `{"type":"error","error":{"type":"rate_limit_error","message":"You exceeded your spend limit","details":{"error_code":"enforced_spend_limit_reached"}},"request_id":"req_1"}`},
	},
	broken: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"trouble in the middle\"}}\n\n",
	image: func(body map[string]any) (string, string) {
		for _, m := range list(body, "messages") {
			for _, p := range list(m, "content") {
				if text(p, "type") == "image" && text(p, "source", "type") == "base64" {
					return text(p, "source", "media_type"), text(p, "source", "data")
				}
			}
		}
		return "", ""
	},
}

func messageStop(t turn) string {
	switch {
	case t.length:
		return "max_tokens"
	case len(t.calls) > 0:
		return "tool_use"
	}
	return "end_turn"
}

const messageUsage = `"input_tokens":50,"cache_creation_input_tokens":30,"cache_read_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":30,"ephemeral_1h_input_tokens":0}`

func messageWhole(t turn, model string) string {
	var blocks []string
	if t.thought != "" {
		blocks = append(blocks, fmt.Sprintf(`{"type":"thinking","thinking":%s,"signature":%q}`, quoted(t.thought), t.sign))
	}
	if t.text != "" {
		blocks = append(blocks, `{"type":"text","text":`+quoted(t.text)+`}`)
	}
	for _, c := range t.calls {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":%s}`, c.id, c.name, c.args))
	}
	return fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[%s],"stop_reason":%q,"stop_sequence":null,"usage":{%s,"output_tokens":50,"output_tokens_details":{"thinking_tokens":15}}}`,
		model, strings.Join(blocks, ","), messageStop(t), messageUsage)
}

func messageFrames(t turn, _ map[string]any, model string) (out []string) {
	frame := func(typ, more string) {
		out = append(out, fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", typ, typ, more))
	}
	frame("message_start", fmt.Sprintf(`,"message":{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[],"stop_reason":null,"stop_sequence":null,"usage":{%s,"output_tokens":2}}`, model, messageUsage))
	frame("ping", "")
	n := 0
	block := func(start string, deltas ...string) {
		frame("content_block_start", fmt.Sprintf(`,"index":%d,"content_block":%s`, n, start))
		for _, d := range deltas {
			frame("content_block_delta", fmt.Sprintf(`,"index":%d,"delta":{%s}`, n, d))
		}
		frame("content_block_stop", fmt.Sprintf(`,"index":%d`, n))
		n++
	}
	if t.thought != "" {
		var d []string
		for _, p := range pieces(t.thought) {
			d = append(d, `"type":"thinking_delta","thinking":`+quoted(p))
		}
		block(`{"type":"thinking","thinking":"","signature":""}`, append(d, `"type":"signature_delta","signature":`+quoted(t.sign))...)
	}
	if t.text != "" {
		var d []string
		for _, p := range pieces(t.text) {
			d = append(d, `"type":"text_delta","text":`+quoted(p))
		}
		block(`{"type":"text","text":""}`, d...)
	}
	for _, c := range t.calls {
		d := []string{`"type":"input_json_delta","partial_json":""`}
		if c.args == "{}" {
			d = nil
		} else {
			for _, p := range pieces(c.args) {
				d = append(d, `"type":"input_json_delta","partial_json":`+quoted(p))
			}
		}
		block(fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":{}}`, c.id, c.name), d...)
	}
	frame("message_delta", fmt.Sprintf(`,"delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":50,"output_tokens_details":{"thinking_tokens":15}}`, messageStop(t)))
	frame("message_stop", "")
	return out
}

func messageCheck(body map[string]any, before []turn) error {
	msgs := list(body, "messages")
	for n, t := range before {
		m, answer := at(msgs, 2*n+1), at(msgs, 2*n+2)
		if text(m, "role") != "assistant" || text(answer, "role") != "user" {
			return fmt.Errorf("turn %d is not there", n)
		}
		var want []string
		if t.thought != "" {
			want = append(want, "thinking "+t.thought+" "+t.sign)
		}
		if t.text != "" {
			want = append(want, "text "+t.text)
		}
		for _, c := range t.calls {
			want = append(want, "tool_use "+c.id+" "+c.name+" "+c.args)
		}
		var got []string
		for _, b := range list(m, "content") {
			switch text(b, "type") {
			case "thinking":
				got = append(got, "thinking "+text(b, "thinking")+" "+text(b, "signature"))
			case "text": // in pieces, where a client sends those of a stream
				if n := len(got) - 1; n >= 0 && strings.HasPrefix(got[n], "text ") {
					got[n] += text(b, "text")
				} else {
					got = append(got, "text "+text(b, "text"))
				}
			case "tool_use":
				got = append(got, "tool_use "+text(b, "id")+" "+text(b, "name")+" "+jsonOf(at(b, "input")))
			default:
				got = append(got, text(b, "type"))
			}
		}
		if strings.Join(got, "; ") != strings.Join(want, "; ") {
			return fmt.Errorf("turn %d is %q, not %q", n, got, want)
		}
		results := list(answer, "content")
		for j, c := range t.calls {
			if r := at(results, j); text(r, "type") != "tool_result" || text(r, "tool_use_id") != c.id || !strings.Contains(jsonOf(r), result(c.name)) {
				return fmt.Errorf("turn %d, result %d is %s", n, j, jsonOf(r))
			}
		}
	}
	return nil
}

var geminiVendor = &vendor{
	name: "gemini", protocol: agent.GeminiProtocol, path: "/v1beta/models/gemini-3-pro-preview:generateContent", stream: "/v1beta/models/gemini-3-pro-preview:streamGenerateContent",
	model: "gemini-3-pro-preview", whole: geminiWhole, frames: geminiFrames, check: geminiCheck,
	faults: map[string]fault{
		"429":   {429, "", `{"error":{"code":429,"message":"Rate limit reached","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.005s"}]}}`},
		"529":   {503, "", `{"error":{"code":503,"message":"The model is overloaded","status":"UNAVAILABLE"}}`},
		"quota": {429, "", `{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}`},
	},
	broken: "data: {\"error\":{\"code\":500,\"message\":\"trouble in the middle\",\"status\":\"INTERNAL\"}}\r\n\r\n",
	image: func(body map[string]any) (string, string) {
		for _, m := range list(body, "contents") {
			for _, p := range list(m, "parts") {
				if data := text(p, "inlineData", "data"); data != "" {
					return text(p, "inlineData", "mimeType"), data
				}
			}
		}
		return "", ""
	},
}

const geminiUsage = `{"promptTokenCount":100,"cachedContentTokenCount":20,"candidatesTokenCount":35,"thoughtsTokenCount":15,"totalTokenCount":150}`

// geminiParts are the parts of a turn. The signature sits on the first call.
func geminiParts(t turn, cut bool) (parts []string) {
	say := func(s, more string) {
		if s == "" {
			return
		}
		for _, p := range pieces(s) {
			if !cut {
				p = s
			}
			parts = append(parts, `{"text":`+quoted(p)+more+`}`)
			if !cut {
				return
			}
		}
	}
	say(t.thought, `,"thought":true`)
	say(t.text, "")
	for i, c := range t.calls {
		sign := ""
		if i == 0 && t.sign != "" {
			sign = `,"thoughtSignature":` + quoted(t.sign)
		}
		parts = append(parts, fmt.Sprintf(`{"functionCall":{"name":%q,"args":%s}%s}`, c.name, c.args, sign))
	}
	return parts
}

func geminiStop(t turn) string {
	if t.length {
		return "MAX_TOKENS"
	}
	return "STOP"
}

func geminiWhole(t turn, model string) string {
	return fmt.Sprintf(`{"candidates":[{"content":{"parts":[%s],"role":"model"},"finishReason":%q,"index":0}],"usageMetadata":%s,"modelVersion":%q,"responseId":"r1"}`,
		strings.Join(geminiParts(t, false), ","), geminiStop(t), geminiUsage, model)
}

func geminiFrames(t turn, _ map[string]any, model string) (out []string) {
	for _, p := range geminiParts(t, true) {
		out = append(out, fmt.Sprintf("data: {\"candidates\":[{\"content\":{\"parts\":[%s],\"role\":\"model\"},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":100,\"cachedContentTokenCount\":20,\"totalTokenCount\":100},\"modelVersion\":%q,\"responseId\":\"r1\"}\r\n\r\n", p, model))
	}
	return append(out, fmt.Sprintf("data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}],\"role\":\"model\"},\"finishReason\":%q,\"index\":0}],\"usageMetadata\":%s,\"modelVersion\":%q,\"responseId\":\"r1\"}\r\n\r\n",
		geminiStop(t), geminiUsage, model))
}

func geminiCheck(body map[string]any, before []turn) error {
	msgs := list(body, "contents")
	for n, t := range before {
		m, answer := at(msgs, 2*n+1), at(msgs, 2*n+2)
		if text(m, "role") != "model" || text(answer, "role") != "user" {
			return fmt.Errorf("turn %d is not there", n)
		}
		var calls []any
		said := ""
		for _, p := range list(m, "parts") {
			if at(p, "functionCall") != nil {
				calls = append(calls, p)
			} else if at(p, "thought") != true {
				said += text(p, "text")
			}
		}
		if len(calls) != len(t.calls) || said != t.text {
			return fmt.Errorf("turn %d is %s", n, jsonOf(m))
		}
		results := list(answer, "parts")
		for j, c := range t.calls {
			want := t.sign
			if j > 0 {
				want = ""
			}
			sign := text(calls[j], "thoughtSignature")
			if t.sign == "" && sign == "skip_thought_signature_validator" { // for models that refuse a first call without
				want = sign
			}
			if text(calls[j], "functionCall", "name") != c.name || !sameArgs(jsonOf(at(calls[j], "functionCall", "args")), c.args) || sign != want {
				return fmt.Errorf("turn %d, call %d is %s", n, j, jsonOf(calls[j]))
			}
			if r := at(results, j, "functionResponse"); text(r, "name") != c.name || !strings.Contains(jsonOf(r), result(c.name)) {
				return fmt.Errorf("turn %d, result %d is %s", n, j, jsonOf(at(results, j)))
			}
		}
	}
	return nil
}
