package gemini

import (
	"strconv"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

func (codec) DecodeCount(body []byte) (int64, error) {
	if len(body) > wire.MaxFrame || !raw.Valid(body) {
		return 0, badAnswer("the provider's answer is not valid JSON")
	}
	n := gjson.ParseBytes(body).Get("totalTokens")
	if n.Type != gjson.Number || n.Int() < 0 {
		return 0, badAnswer("the provider's answer has no totalTokens")
	}
	return n.Int(), nil
}

func (codec) EncodeCount(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"totalTokens":`), tokens, 10), '}')
}

func (codec) EncodeModel(m wire.ModelInfo) []byte { return appendModel(nil, m) }

func (codec) EncodeModels(list []wire.ModelInfo) []byte {
	b := []byte(`{"models":[`)
	for i, m := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendModel(b, m)
	}
	return append(b, "]}"...)
}

func appendModel(b []byte, m wire.ModelInfo) []byte {
	w := object{b: append(b, '{')}
	name := m.Name
	if name == "" {
		name = m.ID
	}
	w.set("name", raw.AppendString(nil, "models/"+m.ID))
	w.set("baseModelId", raw.AppendString(nil, m.ID))
	w.set("version", []byte(`""`))
	w.set("displayName", raw.AppendString(nil, name))
	if m.Input > 0 {
		w.set("inputTokenLimit", strconv.AppendInt(nil, m.Input, 10))
	}
	if m.Output > 0 {
		w.set("outputTokenLimit", strconv.AppendInt(nil, m.Output, 10))
	}
	w.set("supportedGenerationMethods", []byte(`["generateContent","streamGenerateContent","countTokens"]`))
	return append(w.b, '}')
}
