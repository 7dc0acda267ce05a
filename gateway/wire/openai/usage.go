package openai

import (
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/tidwall/gjson"
)

// Usage reads the figures of an answer, of chats (prompt_tokens) as of responses (input_tokens). Both are inclusive: what was read from a cache or
// written to one is part of the input, and reasoning is part of the output. A part that is larger than its whole is a host's mistake, and cut.
func Usage(u gjson.Result) wire.Usage {
	if !u.IsObject() {
		return wire.Usage{}
	}
	num := func(paths ...string) int64 {
		for _, p := range paths {
			if v := u.Get(p); v.Type == gjson.Number && v.Num >= 0 && v.Num < 1<<53 {
				return int64(v.Num)
			}
		}
		return 0
	}
	has := false
	for _, k := range []string{"prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"} {
		has = has || u.Get(k).Type == gjson.Number
	}
	if !has {
		return wire.Usage{}
	}
	t := agent.ModelTokens{
		Input:      num("prompt_tokens", "input_tokens"),
		Output:     num("completion_tokens", "output_tokens"),
		CacheRead:  num("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cached_tokens"),
		CacheWrite: num("prompt_tokens_details.cache_write_tokens", "input_tokens_details.cache_write_tokens"),
		AudioIn:    num("prompt_tokens_details.audio_tokens", "input_tokens_details.audio_tokens"),
		Reasoning:  num("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"),
		AudioOut:   num("completion_tokens_details.audio_tokens", "output_tokens_details.audio_tokens"),
	}
	// Writes are kept for 30 minutes or 12 hours: the latter for an hour or longer.
	long := num("prompt_tokens_details.cache_write_tokens_details.ttl_12h", "input_tokens_details.cache_write_tokens_details.ttl_12h")
	if t.CacheWrite == 0 {
		t.CacheWrite = num("prompt_tokens_details.cache_write_tokens_details.ttl_30m", "input_tokens_details.cache_write_tokens_details.ttl_30m") + long
	}
	t.CacheRead = min(t.CacheRead, t.Input)
	t.CacheWrite = min(t.CacheWrite, t.Input-t.CacheRead)
	t.CacheWrite1h = min(long, t.CacheWrite)
	t.CacheWrite -= t.CacheWrite1h
	t.AudioIn = min(t.AudioIn, t.Input-t.CacheRead-t.CacheWrite-t.CacheWrite1h)
	t.Reasoning = min(t.Reasoning, t.Output)
	t.AudioOut = min(t.AudioOut, t.Output-t.Reasoning)
	w := wire.Usage{Tokens: t, Known: true}
	if len(u.Raw) <= agent.MaxRawUsage {
		w.Raw = json.RawMessage(u.Raw)
	}
	return w
}

type inDetails struct {
	Cached int64        `json:"cached_tokens"`
	Write  int64        `json:"cache_write_tokens"`
	TTL    *writeDetail `json:"cache_write_tokens_details,omitempty"`
	Audio  int64        `json:"audio_tokens,omitempty"`
}

type writeDetail struct {
	Short int64 `json:"ttl_30m"`
	Long  int64 `json:"ttl_12h"`
}

type outDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
	Audio     int64 `json:"audio_tokens,omitempty"`
}

func details(t agent.ModelTokens) (inDetails, outDetails) {
	in := inDetails{Cached: t.CacheRead, Write: t.CacheWrite + t.CacheWrite1h, Audio: t.AudioIn}
	if t.CacheWrite1h > 0 {
		in.TTL = &writeDetail{t.CacheWrite, t.CacheWrite1h}
	}
	return in, outDetails{t.Reasoning, t.AudioOut}
}

// ChatUsage is usage as chats tell it; nil when it is not known.
func ChatUsage(u wire.Usage) json.RawMessage {
	if !u.Known {
		return nil
	}
	in, out := details(u.Tokens)
	b, _ := json.Marshal(struct {
		In    int64      `json:"prompt_tokens"`
		Out   int64      `json:"completion_tokens"`
		Total int64      `json:"total_tokens"`
		InD   inDetails  `json:"prompt_tokens_details"`
		OutD  outDetails `json:"completion_tokens_details"`
	}{u.Tokens.Input, u.Tokens.Output, u.Tokens.Input + u.Tokens.Output, in, out})
	return b
}

// ResponseUsage is usage as responses tell it; nil when it is not known.
func ResponseUsage(u wire.Usage) json.RawMessage {
	if !u.Known {
		return nil
	}
	in, out := details(u.Tokens)
	b, _ := json.Marshal(struct {
		In    int64      `json:"input_tokens"`
		InD   inDetails  `json:"input_tokens_details"`
		Out   int64      `json:"output_tokens"`
		OutD  outDetails `json:"output_tokens_details"`
		Total int64      `json:"total_tokens"`
	}{u.Tokens.Input, in, u.Tokens.Output, out, u.Tokens.Input + u.Tokens.Output})
	return b
}
