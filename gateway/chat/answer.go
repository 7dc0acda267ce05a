package chat

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

func itoa(i int) string { return strconv.Itoa(i) }

type answer struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage,omitempty"`
	Tier    string          `json:"service_tier,omitempty"`
}

type choice struct {
	Index   int     `json:"index"`
	Message *turn   `json:"message,omitempty"`
	Delta   *turn   `json:"delta,omitempty"`
	Finish  *string `json:"finish_reason"`
	// Logprobs is always null.
	Logprobs *struct{} `json:"logprobs"`
}

func (codec) DecodeAnswer(body []byte, from wire.Origin) (*wire.Answer, error) {
	if !raw.Valid(body) {
		return nil, bad("the provider's answer is not valid JSON")
	}
	r := gjson.ParseBytes(body)
	if e := r.Get("error"); e.IsObject() {
		return nil, openai.StreamFault(r)
	}
	c := r.Get("choices.0")
	if !c.IsObject() {
		return nil, bad("the provider's answer has no choices")
	}
	var t turn
	if m := c.Get("message"); m.IsObject() {
		if err := openai.Unmarshal([]byte(m.Raw), &t); err != nil {
			return nil, bad("the provider's answer: message.%s", agent.AsError(err).Msg)
		}
	}
	if t.Function != nil && len(t.Calls) == 0 {
		t.Calls = []call{{Function: t.Function}}
	}
	parts, err := said("message", t, &from)
	if err != nil {
		return nil, bad("the provider's answer: %s", agent.AsError(err).Msg)
	}
	a := &wire.Answer{
		ID: r.Get("id").String(), Model: r.Get("model").String(), Created: created(r), Parts: parts, Usage: openai.Usage(r.Get("usage")),
		Tier: r.Get("service_tier").String(), Stop: stopOf(c.Get("finish_reason").String()),
	}
	if c.Get("finish_reason").Str == "error" {
		return nil, openai.StreamFault(c)
	}
	a.Stop = settle(a.Stop, parts)
	return a, nil
}

func created(r gjson.Result) time.Time {
	if n := r.Get("created"); n.Type == gjson.Number && n.Num > 0 && n.Num < 1<<40 {
		return time.Unix(int64(n.Num), 0).UTC()
	}
	return time.Time{}
}

// settle says why a model stopped where hosts say less than they know.
func settle(s wire.Stop, parts []wire.Part) wire.Stop {
	calls, refuses := false, false
	for _, p := range parts {
		calls = calls || p.Kind == wire.CallPart
		refuses = refuses || p.Kind == wire.RefusalPart
	}
	return settled(s, calls, refuses)
}

func settled(s wire.Stop, calls, refuses bool) wire.Stop {
	if s == wire.StopEnd || s == wire.StopUnknown {
		switch {
		case calls:
			return wire.StopTool
		case refuses:
			return wire.StopFilter
		case s == wire.StopUnknown:
			return wire.StopEnd
		}
	}
	return s
}

func (codec) EncodeAnswer(a *wire.Answer, r *wire.Request) ([]byte, error) {
	t := turn{Role: "assistant", Content: json.RawMessage("null")}
	var text, refusal, thought strings.Builder
	for i, p := range a.Parts {
		call := ""
		switch p.Kind {
		case wire.TextPart:
			text.WriteString(p.Text)
		case wire.RefusalPart:
			refusal.WriteString(p.Text)
		case wire.ThoughtPart:
			thought.WriteString(p.Text)
		case wire.CallPart:
			if p.Call == nil {
				continue
			}
			call = p.Call.ID
			t.Calls = append(t.Calls, callOf(p.Call, r))
		case wire.MediaPart:
			if x, err := piece(p); err == nil && x.Image != nil {
				t.Images = append(t.Images, x)
			} else {
				return nil, bad("parts[%d]: media that are no images cannot be an answer in chat completions", i)
			}
		}
		if p.Thought != nil {
			t.Details = append(t.Details, sealedDetail(p.Text, p.Thought, i, call))
		}
	}
	t.Refusal, t.Thought = refusal.String(), thought.String()
	if text.Len() > 0 {
		t.Content = openai.String(text.String())
	}
	reason := reasonOf(a.Stop)
	out := answer{
		ID: idOf(a.ID), Object: "chat.completion", Created: unix(a.Created), Model: a.Model, Choices: []choice{{Message: &t, Finish: &reason}},
		Usage: openai.ChatUsage(a.Usage), Tier: a.Tier,
	}
	return openai.Marshal(&out)
}

// callOf is a call as the client that asked r knows it: of a custom tool, if that is what it offered.
func callOf(c *wire.ToolCall, r *wire.Request) call {
	switch {
	case c.Custom:
		return call{ID: c.ID, Type: "custom", Custom: &custom{Name: c.Name, Input: c.Args}}
	case offersCustom(r, c.Name):
		return call{ID: c.ID, Type: "custom", Custom: &custom{Name: c.Name, Input: wire.UnwrapCustom(c.Args)}}
	}
	return call{ID: c.ID, Type: "function", Function: &function{Name: c.Name, Args: openai.String(args(c.Args))}}
}

func offersCustom(r *wire.Request, name string) bool {
	if r != nil {
		for _, t := range r.Tools {
			if t.Name == name {
				return t.Custom
			}
		}
	}
	return false
}

func idOf(id string) string {
	if id == "" {
		return openai.NewID("chatcmpl-")
	}
	return id
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		t = time.Now()
	}
	return t.Unix()
}
