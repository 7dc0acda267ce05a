package message

import (
	"encoding/json"
	"strconv"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// figures are what a provider told of usage: input without what was read from or written to the cache. A stream tells them more than once; what is told
// later replaces what was told before, and what is left out stays.
type figures struct {
	input, read, write, write5m, write1h, output, thoughts, searches int64

	split bool // how long the writes are kept was told
	known bool
	tier  string
	first json.RawMessage // the whole of what was told first
	last  json.RawMessage
}

// take overwrites what v tells.
func (f *figures) take(v gjson.Result) {
	if !v.IsObject() {
		return
	}
	number := func(v gjson.Result, to *int64) {
		if v.Type == gjson.Number {
			*to = max(v.Int(), 0)
			f.known = true
		}
	}
	number(v.Get("input_tokens"), &f.input)
	number(v.Get("cache_read_input_tokens"), &f.read)
	number(v.Get("cache_creation_input_tokens"), &f.write)
	if c := v.Get("cache_creation"); c.IsObject() {
		f.split = true
		number(c.Get("ephemeral_5m_input_tokens"), &f.write5m)
		number(c.Get("ephemeral_1h_input_tokens"), &f.write1h)
	}
	number(v.Get("output_tokens"), &f.output)
	number(v.Get("output_tokens_details").Get("thinking_tokens"), &f.thoughts)
	number(v.Get("server_tool_use").Get("web_search_requests"), &f.searches)
	if t := v.Get("service_tier"); t.Type == gjson.String && len(t.Str) <= 64 {
		if f.tier = t.Str; f.tier == "standard" { // the usual one
			f.tier = ""
		}
	}
	if v.Get("speed").Str == "fast" { // which has a price of its own
		f.tier = "fast"
	}
	if len(v.Raw) <= agent.MaxRawUsage {
		if f.first == nil {
			f.first = json.RawMessage(v.Raw)
		} else {
			f.last = json.RawMessage(v.Raw)
		}
	}
}

// usage is f in canonical figures.
func (f *figures) usage() wire.Usage {
	if !f.known {
		return wire.Usage{}
	}
	write, long := f.write, int64(0)
	if f.split {
		long = min(f.write1h, max(f.write, f.write5m+f.write1h))
		write = max(f.write, f.write5m+f.write1h) - long
	}
	t := agent.ModelTokens{
		Input: f.input + f.read + write + long, CacheRead: f.read, CacheWrite: write, CacheWrite1h: long,
		Output: f.output, Reasoning: min(f.thoughts, f.output), Searches: f.searches,
	}
	return wire.Usage{Tokens: t, Known: true, Raw: f.raw()}
}

// raw is what the provider told: the fields told first, with those told later in their place.
func (f *figures) raw() json.RawMessage {
	if f.last == nil {
		return f.first
	}
	o, err := raw.Read(f.first)
	if err != nil {
		return f.last
	}
	l, err := raw.Read(f.last)
	if err != nil {
		return f.first
	}
	merged, err := raw.Read(o.With(l))
	if err != nil { // a name in other letters is there twice
		return f.last
	}
	return merged.Bytes
}

// appendUsage appends u as the protocol has it.
func appendUsage(b []byte, u wire.Usage, tier string) []byte {
	t := u.Tokens
	field := func(name string, n int64) {
		b = append(b, name...)
		b = strconv.AppendInt(b, n, 10)
	}
	field(`{"input_tokens":`, max(t.Input-t.CacheRead-t.CacheWrite-t.CacheWrite1h, 0))
	field(`,"cache_creation_input_tokens":`, t.CacheWrite+t.CacheWrite1h)
	field(`,"cache_read_input_tokens":`, t.CacheRead)
	field(`,"cache_creation":{"ephemeral_5m_input_tokens":`, t.CacheWrite)
	field(`,"ephemeral_1h_input_tokens":`, t.CacheWrite1h)
	field(`},"output_tokens":`, t.Output)
	if t.Reasoning > 0 {
		field(`,"output_tokens_details":{"thinking_tokens":`, t.Reasoning)
		b = append(b, '}')
	}
	if t.Searches > 0 {
		field(`,"server_tool_use":{"web_search_requests":`, t.Searches)
		b = append(b, '}')
	}
	if tier != "" {
		b = append(b, `,"service_tier":`...)
		b = raw.AppendString(b, tier)
	}
	return append(b, '}')
}
