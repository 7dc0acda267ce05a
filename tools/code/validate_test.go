package code

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestValidate(t *testing.T) {
	const s = `{"type":"object","properties":{
		"path":{"type":"string"},"limit":{"type":"integer","minimum":1,"maximum":100},"mode":{"enum":["read","write","append"]},
		"edits":{"type":"array","items":{"type":"object","properties":{"oldText":{"type":"string"},"newText":{"type":"string"}},"required":["oldText","newText"],"additionalProperties":false}},
		"id":{"anyOf":[{"type":"string"},{"type":"number"}]},
		"shape":{"oneOf":[{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"number"}},"required":["kind","r"]},
			{"type":"object","properties":{"kind":{"const":"box"},"w":{"type":"number"}},"required":["kind","w"]}]},
		"name":{"type":"string","pattern":"^[a-z]+$","minLength":2},"look":{"type":"string","pattern":"(?<=a)b"},
		"remote":{"$ref":"https://example.com/x.json"}},
		"required":["path"],"additionalProperties":false}`
	var v Validator
	for _, c := range []struct{ args, msg, hint string }{
		{`{"path":"a","limit":3,"mode":"read","edits":[],"id":1,"shape":{"kind":"box","w":1},"name":"ab","look":"x","remote":7}`, "", ""},
		{`{}`, "path is missing (string)", ""},
		{``, "path is missing (string)", ""},
		{`{"path":7}`, "path: must be a string, not a number", ""},
		{`{"path":"a","pth":"b"}`, "pth is not known", "did you mean path?"},
		{`{"path":"a","zzzzzz":"b"}`, "zzzzzz is not known", "known are path, limit"},
		{`{"path":"a","limit":"3"}`, "limit: must be an integer, not a string", ""},
		{`{"path":"a","limit":1.5}`, "limit: must be an integer, not a number", ""},
		{`{"path":"a","limit":101}`, "limit: ", ""},
		{`{"path":"a","mode":"wirte"}`, `mode: must be "read", "write" or "append", not "wirte" (did you mean write?)`, ""},
		{`{"path":"a","edits":[{"oldText":"x","new_text":"y"}]}`, "edits[0].newText is missing (string)", ""},
		{`{"path":"a","edits":[{"oldText":"x","newText":"y","newtext":1}]}`, "edits[0].newtext is not known", "did you mean newText?"},
		{`{"path":"a","id":true}`, "id: must be a string or a number, not a boolean", ""},
		{`{"path":"a","shape":{"kind":"box"}}`, "shape", ""},
		{`{"path":"a","name":"A1"}`, "name: must match ^[a-z]+$", ""},
		{`[]`, "the arguments of a tool are an object, not an array", "call it as"},
		{`"x"`, "the arguments of a tool are an object, not a string", ""},
		{`{"path":`, "the arguments are not JSON", ""},
		{`{"path":"a"} {}`, "the arguments are not JSON", ""},
		{`{"path":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, "levels deep", ""},
	} {
		for range 2 {
			err := v.Validate([]byte(s), []byte(c.args))
			if c.msg == "" {
				if err != nil {
					t.Errorf("%s: %v", c.args, err)
				}
				continue
			}
			e := agent.AsError(err)
			if e == nil || e.Kind != agent.Invalid || !strings.Contains(e.Msg, c.msg) || !strings.Contains(e.Hint, c.hint) || len(e.Msg) > 600 {
				t.Errorf("%.80s: %+v, want %q and %q", c.args, e, c.msg, c.hint)
			}
		}
	}
}

// TestValidateWithout takes schemas that cannot be used as ones that say nothing.
func TestValidateWithout(t *testing.T) {
	var v Validator
	for _, s := range []string{"", "null", "true", "[]", `"x"`, `{`, `{"type":"no such"}`, `{"$ref":"#/none"}`, `{"$ref":"#"}`, `{"$schema":"https://example.com/own"}`,
		`{"properties":7}`, strings.Repeat("[", 5000), `{"$ref":"file:///etc/passwd"}`} {
		if err := v.Validate([]byte(s), []byte(`{"a":1}`)); err != nil {
			t.Errorf("%.40s: %v", s, err)
		}
	}
	if err := v.Validate([]byte(`{"$schema":"https://example.com/own","required":["b"]}`), []byte(`{}`)); err == nil {
		t.Error("a schema of an unknown draft is not checked by")
	}
	if err := v.Validate([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"x":{"type":"string"}},"properties":{"b":{"$ref":"#/definitions/x"}}}`), []byte(`{"b":1}`)); err == nil {
		t.Error("draft-07 is not checked by")
	}
}

// TestValidateBombs ends at once where schemas would multiply.
func TestValidateBombs(t *testing.T) {
	var v Validator
	var defs []string
	for i := range 40 {
		defs = append(defs, fmt.Sprintf(`"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i+1, i+1))
	}
	bomb := `{"$ref":"#/$defs/a0","$defs":{` + strings.Join(defs, ",") + `,"a40":{"required":["x"]}}}`
	if err := v.Validate([]byte(bomb), []byte(`{}`)); err != nil {
		t.Errorf("a bomb of references: %v", err)
	}
	twice := `{"anyOf":[{"properties":{"x":{"$ref":"#"}},"required":["x"]},{"properties":{"x":{"$ref":"#"}},"required":["x"]}]}`
	args := strings.Repeat(`{"x":`, 60) + "1" + strings.Repeat("}", 60)
	if err := v.Validate([]byte(twice), []byte(args)); err != nil {
		t.Errorf("a bomb of depth: %v", err)
	}
	tree := `{"properties":{"l":{"$ref":"#"},"r":{"$ref":"#"},"v":{"type":"number"}},"additionalProperties":false}`
	deep := strings.Repeat(`{"l":`, 60) + `{"v":"x"}` + strings.Repeat("}", 60)
	if err := v.Validate([]byte(tree), []byte(deep)); err == nil {
		t.Error("a tree is not checked")
	}
}

// TestValidateRealTools compiles every schema of real servers.
func TestValidateRealTools(t *testing.T) {
	for _, tool := range realTools(t) {
		c := compile(tool.Input)
		if c.schema == nil {
			t.Errorf("%s: its schema does not compile", tool.Name)
		} else if n := c.looks(20); n > 1000 {
			t.Errorf("%s: %d looks", tool.Name, n)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	var v Validator
	tools := realTools(b)
	for b.Loop() {
		_ = v.Validate(tools[20].Input, []byte(`{"path":"/tmp/a","content":"x"}`))
	}
}

func FuzzValidate(f *testing.F) {
	for _, t := range realTools(f)[:40] {
		f.Add([]byte(t.Input), []byte(`{"path":"a"}`))
	}
	f.Add([]byte(`{"$ref":"#"}`), []byte(`{}`))
	f.Add([]byte(`{"anyOf":[{"$ref":"#"},{"properties":{"a":{"$ref":"#"}}}]}`), []byte(`{"a":{"a":1}}`))
	f.Fuzz(func(t *testing.T, schema, args []byte) {
		var v Validator
		if err := v.Validate(schema, args); err != nil && (agent.KindOf(err) != agent.Invalid || len(err.Error()) > 8<<10) {
			t.Errorf("%v", err)
		}
	})
}

// A schema that names its parts is read by several checks at once, of arguments as deep as one likes.
func TestValidateAtOnce(t *testing.T) {
	schema := []byte(`{"type": "object", "required": ["a"], "properties": {"a": {"type": "object", "properties": {"b": {"$ref": "#deep"}}}},
		"$defs": {"d": {"$anchor": "deep", "type": "object", "properties": {"c": {"$ref": "#deep"}}}}}`)
	for range 50 {
		var v Validator
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() { _ = v.Validate(schema, []byte([]string{`{}`, `{"a":{"b":{"c":1}}}`}[i%2])) })
		}
		wait.Wait()
	}
}
