package builtin

import (
	"encoding/json"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// TestCLI calls the tools that stand for what a CLI asks: no list has them, and they do nothing.
func TestCLI(t *testing.T) {
	src, err := Opener(Options{})(t.Context(), agent.ToolServer{Name: CLI}, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := src.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]agent.Effect{
		"run": agent.Execute, "edit": agent.Modify, "read": agent.Read, "fetch": agent.ModifyExecute, "tool": agent.Execute,
	}
	for _, o := range list {
		if !o.Hidden || !o.Idempotent || o.Declared != effects[o.Method] {
			t.Errorf("%s: %+v", o.Method, o)
		}
		delete(effects, o.Method)
		res, err := src.Call(t.Context(), o.Method, json.RawMessage(`{"command":"rm -rf /","more":1}`), nil)
		if err != nil || string(res.Value) != `{"allowed":true}` {
			t.Errorf("%s: %s, %v", o.Method, res.Value, err)
		}
	}
	if len(effects) > 0 {
		t.Errorf("there are no tools %v", effects)
	}
}
