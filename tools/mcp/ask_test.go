package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
)

func TestQuestions(t *testing.T) {
	c := &call{link: &link{k: &keeper{s: &source{rec: agent.ToolServer{Name: "it"}}}}}
	form := func(fields string) *sdk.ElicitParams {
		return &sdk.ElicitParams{Message: "m", RequestedSchema: json.RawMessage(`{"type":"object","properties":{` + fields + `}}`)}
	}
	for _, tt := range []struct {
		p    *sdk.ElicitParams
		want string // in the error; none when it is asked
	}{
		{form(`"name":{"type":"string"},"max_tokens":{"type":"integer"},"keyboard":{"type":"string"},"has_password":{"type":"boolean"}`), ""},
		{&sdk.ElicitParams{Message: "m", Mode: "url", URL: "https://example.com/connect"}, ""},
		{form(`"userPassword":{"type":"string"}`), `"userPassword" of its form looks like one for a secret`},
		{form(`"x":{"type":"string","title":"API key"}`), "looks like one for a secret"},
		{form(`"APIKey":{"type":"string"}`), "looks like one for a secret"},
		{form(`"otp":{"type":"integer"}`), "looks like one for a secret"},
		{form(`"x":{"type":"string","format":"password"}`), "looks like one for a secret"},
		{form(`"token":{"type":"string","enum":["a"]}`), "looks like one for a secret"},
		{form(`"deep":{"type":"object"}`), "neither text"},
		{form(`"x":{"type":"string","description":"` + strings.Repeat("x", 20<<10) + `"}`), "more than 16384 bytes"},
		{&sdk.ElicitParams{Mode: "url", URL: "javascript:alert(1)"}, "not the URL of a web page"},
		{&sdk.ElicitParams{Mode: "url", URL: "https://a:b@example.com/"}, "not the URL of a web page"},
		{&sdk.ElicitParams{Mode: "telepathy"}, "neither a form nor a URL"},
	} {
		q, err := c.question(tt.p)
		if tt.want == "" {
			if err != nil || q.Server != "it" || (q.URL == "") == (q.Schema == nil) {
				t.Errorf("%+v: %+v, %v", tt.p, q, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.p, err)
		}
	}
}
