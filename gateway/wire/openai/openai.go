// Package openai is what OpenAI's protocols have in common: errors, headers, figures of usage, and names of models.
package openai

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// passed are the fields of clients' headers that go on to a provider. Those that name an account are not among them: the key is the gateway's.
var passed = []string{"Openai-Beta", "X-Client-Request-Id", "Originator", "Session_id", "Conversation_id", "Version"}

// Header returns what a call to a provider carries.
func Header(client http.Header, stream bool) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if stream {
		h.Set("Accept", "text/event-stream")
	}
	for k, v := range client {
		for _, name := range passed {
			if strings.EqualFold(k, name) {
				h[k] = append([]string(nil), v...)
			}
		}
	}
	return h
}

// Query returns a client's query without a key in it.
func Query(q string) string {
	if q == "" {
		return ""
	}
	var keep []string
	for _, kv := range strings.Split(q, "&") {
		if name, _, _ := strings.Cut(kv, "="); name != "key" && kv != "" {
			keep = append(keep, kv)
		}
	}
	return strings.Join(keep, "&")
}

// Key puts a provider's key where the protocols have it.
func Key(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }

// Read reads a request: an object in which each field is once.
func Read(body []byte) (raw.Object, error) { return raw.Read(body) }

// Model reads the name of the model, which must be there.
func Model(o raw.Object) (string, error) {
	v := o.Get("model")
	if v.Type != gjson.String || v.Str == "" {
		return "", agent.Errorf(agent.Invalid, "model: a name of a model is required")
	}
	if len(v.Str) > 512 {
		return "", agent.Errorf(agent.Invalid, "model: the name is longer than 512 bytes")
	}
	return v.Str, nil
}

// Bool reads a field that is true, false, null or not there.
func Bool(o raw.Object, name string) (bool, error) {
	switch v := o.Get(name); v.Type {
	case gjson.True:
		return true, nil
	case gjson.False, gjson.Null:
		return false, nil
	}
	return false, agent.Errorf(agent.Invalid, "%s: must be true or false", name)
}

// Count reads a field that is a number from 0 on, null or not there.
func Count(o raw.Object, name string) (int64, error) {
	switch v := o.Get(name); {
	case v.Type == gjson.Null:
		return 0, nil
	case v.Type == gjson.Number && v.Num >= 0 && v.Num < 1<<53:
		return int64(v.Num), nil
	}
	return 0, agent.Errorf(agent.Invalid, "%s: must be a number that is not negative", name)
}

// SetModel returns a request's bytes with another model; the same bytes when it is the same.
func SetModel(o raw.Object, model string) []byte {
	if v := o.Get("model"); model == "" || v.Type == gjson.String && v.Str == model {
		return o.Bytes
	}
	return o.Set("model", raw.AppendString(nil, model))
}

// User reads on whose behalf a request is.
func User(o raw.Object) string {
	for _, name := range []string{"user", "safety_identifier"} {
		if v := o.Get(name); v.Type == gjson.String && v.Str != "" {
			return v.Str
		}
	}
	return ""
}

var thinkers = regexp.MustCompile(`(?i)^(o[1-9]|gpt-[5-9]|codex|computer-use)`)

// Thinks reports whether a model is, by its name, one of OpenAI's that reason. Those want max_completion_tokens, take custom tools in chats, and have
// encrypted reasoning; others may refuse each of these.
func Thinks(model string) bool {
	model = model[strings.LastIndexByte(model, '/')+1:]
	return thinkers.MatchString(model) && !strings.Contains(strings.ToLower(model), "-chat")
}

var own = regexp.MustCompile(`(?i)^(o[1-9]|gpt-[3-9]|chatgpt|codex)`)

// Own reports whether a model is, by its name, one of OpenAI's, which refuse fields that only other hosts have.
func Own(model string) bool { return own.MatchString(model[strings.LastIndexByte(model, '/')+1:]) }

// Effort names how much a model shall think; "" when nothing is said that the protocols have a word for.
func Effort(r *wire.Reasoning) string {
	switch {
	case r == nil:
		return ""
	case r.Effort == "max":
		return "xhigh"
	case r.Effort != "":
		return r.Effort
	case r.Budget == nil || *r.Budget < 0:
		return ""
	case *r.Budget == 0:
		return "none"
	case *r.Budget <= 1024:
		return "minimal"
	case *r.Budget <= 4096:
		return "low"
	case *r.Budget <= 16384:
		return "medium"
	}
	return "high"
}

// CheckEffort refuses a word that is none.
func CheckEffort(field, s string) error {
	switch s {
	case "", "none", "minimal", "low", "medium", "high", "xhigh", "max":
		return nil
	}
	return agent.Errorf(agent.Invalid, "%s: must be none, minimal, low, medium, high, xhigh or max", field)
}

// Short is a string of a frame, cut to what names have, without the frame being kept for it.
func Short(v gjson.Result) string {
	if v.Type != gjson.String && v.Type != gjson.Number {
		return ""
	}
	return strings.Clone(cut(v.String(), 256))
}
