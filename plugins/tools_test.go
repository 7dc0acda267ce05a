package plugins

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestManifestTools(t *testing.T) {
	exports := []string{"add", "sub"}
	for _, c := range []struct{ tools, want string }{
		{`{"add": {"description": "adds", "input": {"type": "object", "properties": {"a": {"type": "number"}}}, "output": {"type": "number"}, "effect": "read", "undo": "sub"}, "sub": {}}`, ""},
		{`{"mul": {}}`, `skep.json: tools.mul: the code has no such function`},
		{`{"add": {"input": {"type": "string"}}}`, `the schema has to be of an object`},
		{`{"add": {"input": {"type": "object", "properties": {"a": {"type": "nothing"}}}}}`, `the schema is not valid`},
		{`{"add": {"input": {"type": "object", "$ref": "https://example.com/x"}}}`, `the schema is not valid`},
		{`{"add": {"undo": "mul"}}`, `undo names "mul"`},
		{`{"add": {"undo": "add"}}`, `undo names "add"`},
		{`{"add": {"effect": "harmless"}}`, `unknown effect`},
		{`{"add": {"efect": "read"}}`, `unknown field`},
	} {
		m, err := parseManifest([]byte(`{"tools": ` + c.tools + `}`))
		if err == nil {
			err = m.Tools.Check(exports)
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.tools, err)
		case c.want != "" && (agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.tools, err)
		}
	}
}
