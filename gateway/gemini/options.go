package gemini

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
)

type generateConfig struct {
	Temperature *float64        `json:"temperature,omitempty"`
	TopP        *float64        `json:"topP,omitempty"`
	TopK        *int64          `json:"topK,omitempty"`
	MaxTokens   *int64          `json:"maxOutputTokens,omitempty"`
	Stop        []string        `json:"stopSequences,omitempty"`
	Presence    *float64        `json:"presencePenalty,omitempty"`
	Frequency   *float64        `json:"frequencyPenalty,omitempty"`
	Seed        *int64          `json:"seed,omitempty"`
	MIME        string          `json:"responseMimeType,omitempty"`
	Schema      json.RawMessage `json:"responseSchema,omitempty"`
	JSON        json.RawMessage `json:"responseJsonSchema,omitempty"`
	Thinking    *thinkingConfig `json:"thinkingConfig,omitempty"`
}

type thinkingConfig struct {
	Include bool   `json:"includeThoughts,omitempty"`
	Budget  *int64 `json:"thinkingBudget,omitempty"`
	Level   string `json:"thinkingLevel,omitempty"`
}

// levelled reports whether a model takes a level of thinking, and wants its signatures back: those from Gemini 3 on.
func levelled(model string) bool {
	_, v, ok := strings.Cut(strings.ToLower(path.Base(model)), "gemini-")
	return ok && v != "" && (v[0] >= '3' && v[0] <= '9' || len(v) > 1 && v[0] == '1' && v[1] >= '0' && v[1] <= '9')
}

// budgets are what efforts mean for models that take a number of tokens.
var budgets = map[string]int64{"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}

// levels are what they mean for models that take a level. None of these can be told not to think at all.
var levels = map[string]string{"none": "minimal", "minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}

func (e *encoding) config(out *request) error {
	r := e.r
	c := &generateConfig{
		Temperature: r.Temperature, TopP: r.TopP, TopK: r.TopK, MaxTokens: r.MaxTokens, Stop: r.Stop, Presence: r.Presence, Frequency: r.Frequency, Seed: r.Seed,
	}
	if f := r.Format; f != nil {
		c.MIME = "application/json"
		if len(f.Schema) > 0 {
			if o, ok := toOpenAPI(f.Schema); ok {
				c.Schema = o
			} else {
				c.JSON = f.Schema
			}
		}
	}
	if t := r.Reasoning; t != nil {
		w, err := e.thinking(t)
		if err != nil {
			return err
		}
		c.Thinking = w
	}
	if b, err := json.Marshal(c); err != nil || string(b) != "{}" {
		out.Config = c
	}
	return nil
}

func (e *encoding) thinking(t *wire.Reasoning) (*thinkingConfig, error) {
	w := &thinkingConfig{Include: t.Summary != "" && !t.Hidden && t.Effort != "none"}
	level, ok := levels[t.Effort]
	if !ok && t.Effort != "" {
		return nil, invalid("reasoning effort: %s is not known", raw.Show(t.Effort))
	}
	budget := t.Budget
	if budget != nil && *budget < 0 {
		budget = nil
	}
	switch {
	case t.Effort == "none" && !levelled(e.model):
		w.Budget = new(int64(0))
	case budget != nil && t.Effort == "": // every model takes it
		w.Budget = budget
	case t.Effort != "" && levelled(e.model):
		w.Level = level
	case budget != nil:
		w.Budget = budget
	case t.Effort != "":
		w.Budget = new(budgets[t.Effort])
	case t.Adapt:
		w.Budget = new(int64(-1))
	}
	if *w == (thinkingConfig{}) {
		return nil, nil
	}
	return w, nil
}
