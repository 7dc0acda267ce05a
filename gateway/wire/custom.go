package wire

import (
	"encoding/json"

	"github.com/tidwall/gjson"
)

// CustomSchema is the schema of the arguments under which a tool that takes free text (Tool.Custom) is offered in a protocol that has no such tools:
// an object whose one field is the text.
var CustomSchema = json.RawMessage(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`)

// WrapCustom makes the arguments of a call whose tool takes free text: an object of CustomSchema.
func WrapCustom(text string) string {
	return string(append(gjson.AppendJSONString([]byte(`{"input":`), text), '}'))
}

// UnwrapCustom is the way back. Arguments that are no such object are returned as they are.
func UnwrapCustom(args string) string {
	if !gjson.Valid(args) {
		return args
	}
	if v := gjson.Get(args, "input"); v.Type == gjson.String {
		return v.Str
	}
	return args
}
