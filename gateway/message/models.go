package message

import (
	"strconv"
	"time"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

func (codec) DecodeCount(body []byte) (int64, error) {
	v, err := readable(body)
	if err != nil {
		return 0, err
	}
	n := v.Get("input_tokens")
	if n.Type != gjson.Number || n.Int() < 0 {
		return 0, badAnswer("the provider's answer has no input_tokens")
	}
	return n.Int(), nil
}

func (codec) EncodeCount(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"input_tokens":`), tokens, 10), '}')
}

func (codec) EncodeModel(m wire.ModelInfo) []byte { return appendModel(nil, m) }

func (codec) EncodeModels(list []wire.ModelInfo) []byte {
	b := []byte(`{"data":[`)
	for i, m := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendModel(b, m)
	}
	b = append(b, `],"has_more":false,"first_id":`...)
	edge := func(at int) {
		if len(list) == 0 {
			b = append(b, "null"...)
			return
		}
		b = raw.AppendString(b, list[at].ID)
	}
	edge(0)
	b = append(b, `,"last_id":`...)
	edge(len(list) - 1)
	return append(b, '}')
}

func appendModel(b []byte, m wire.ModelInfo) []byte {
	name := m.Name
	if name == "" {
		name = m.ID
	}
	created := m.Created
	if created.IsZero() {
		created = time.Unix(0, 0)
	}
	b = append(b, `{"type":"model","id":`...)
	b = raw.AppendString(b, m.ID)
	b = append(b, `,"display_name":`...)
	b = raw.AppendString(b, name)
	b = append(b, `,"created_at":`...)
	b = raw.AppendString(b, created.UTC().Format(time.RFC3339))
	if m.Input > 0 {
		b = strconv.AppendInt(append(b, `,"max_input_tokens":`...), m.Input, 10)
	}
	if m.Output > 0 {
		b = strconv.AppendInt(append(b, `,"max_tokens":`...), m.Output, 10)
	}
	return append(b, '}')
}
