package plugins

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestMCP(t *testing.T) {
	good := `{"mcp":{"tools":[{"name":"add","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}}],"prompts":[{"name":"hi","function":"add"}],
		"resources":[{"uri":"test://a","name":"a","function":"add"}],"resourceTemplates":[{"uriTemplate":"test://{id}/{+rest}","name":"t","function":"add"}],"complete":"add"}}`
	m, err := parseManifest([]byte(good))
	if err == nil {
		err = m.MCP.Check([]string{"add"})
	}
	if err != nil {
		t.Fatal(err)
	}
	if m.MCP.Tools[0].Function != "add" {
		t.Error("a tool without a function is not the one of its name")
	}
	values, ok := m.MCP.Templates[0].Match("test://a%20b/c/d")
	if !ok || values["id"] != "a b" || values["rest"] != "c/d" {
		t.Error(values, ok)
	}
	if _, ok := m.MCP.Templates[0].Match("test://a"); ok {
		t.Error("a URI of another form matches")
	}

	for in, want := range map[string]string{
		`{"tools":[{"name":"a b"}]}`: "name", `{"tools":[{"name":"gone"}]}`: `function "gone" is not in the code`, `{"tools":[{"name":"add"},{"name":"add"}]}`: "twice",
		`{"tools":[{"name":"add","inputSchema":{"type":"array"}}]}`: `"type": "object"`, `{"tools":[{"name":"add","inputSchema":[]}]}`: "not a JSON object",
		`{"tools":[{"name":"add","requires":["money"]}]}`: "requires", `{"tools":[{"name":"add","outputSchema":1}]}`: "outputSchema",
		`{"tools":[{"name":"add","inputSchema":{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A"}}}}]}`: "x-mcp-header",
		`{"resources":[{"uri":"relative","name":"a","function":"add"}]}`:                                                     "absolute URI", `{"resources":[{"uri":"test://a","name":"","function":"add"}]}`: "name",
		`{"resourceTemplates":[{"uriTemplate":"test://a","name":"a","function":"add"}]}`: "make it a resource", `{"resourceTemplates":[{"uriTemplate":"test://{a,b}","name":"a","function":"add"}]}`: "absolute URI",
		`{"complete":"gone"}`: "complete", `{"prompts":[{"name":"add","arguments":[{"name":""}]}]}`: "argument",
	} {
		m, err := parseManifest([]byte(`{"mcp":` + in + `}`))
		if err == nil {
			err = m.MCP.Check([]string{"add"})
		}
		if agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", in, err)
		}
	}
	if err := (*MCP)(nil).Check(nil); err != nil {
		t.Error(err)
	}
}

func FuzzMCP(f *testing.F) {
	f.Add(`{"mcp":{"tools":[{"name":"add"}],"resourceTemplates":[{"uriTemplate":"test://{id}","name":"t","function":"add"}]}}`, "test://1")
	f.Fuzz(func(t *testing.T, manifest, uri string) {
		m, err := parseManifest([]byte(manifest))
		if err != nil || m.MCP.Check([]string{"add"}) != nil || m.MCP == nil {
			return
		}
		for _, one := range m.MCP.Templates {
			one.Match(uri)
		}
	})
}
