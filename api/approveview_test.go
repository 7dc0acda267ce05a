package api

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func page(t *testing.T, v approveView) string {
	t.Helper()
	var b bytes.Buffer
	if err := approvePage.Execute(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Whatever a call or a server says, the page shows it as text.
func TestApproveViewShowsStrangersText(t *testing.T) {
	evil := "</pre><script>x</script>\u202e\u200b\x1b[2K\U000e0041"
	args, _ := json.Marshal(map[string]string{"a": evil})
	a := agent.Approval{App: "default", Agent: "code", Run: "01JD", Title: evil, Calls: []agent.ApprovalCall{
		{Tool: "a." + evil, Args: args, ArgsDigest: agent.DigestOf(args), Decision: agent.Decision{Effect: agent.Execute, Reason: evil, Rule: evil, Notes: []string{evil}}},
		{Tool: "a.b", Args: json.RawMessage(`"{\"a\":\"\u202e..."`), ArgsDigest: "sha256:x", Decision: agent.Decision{Effect: agent.Read}},
		{Tool: "a.c", Args: json.RawMessage(`{"a":1}`), ArgsDigest: agent.DigestOf([]byte(`{"a":2}`))},
	}}
	got := page(t, viewOf(a, "soon"))
	if strings.Contains(got, "<script") || strings.ContainsAny(got, "\u202e\u200b\x1b\U000e0041") {
		t.Error(got)
	}
	for _, want := range []string{`\u202e\u200b\u001b[2K\u{e0041}`, "runs what it is given", "3 calls", "only the beginning", "not what would be sent", "nobody has said what it can do", "2 of 3"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %s:\n%s", want, got)
		}
	}
	a = agent.Approval{Agent: "code", Asks: &agent.Question{Server: "s", Message: evil, URL: "javascript:alert(1)" + evil}}
	if got = page(t, viewOf(a, "soon")); strings.Contains(got, "<script") || strings.Contains(got, `href`) || strings.ContainsAny(got, "\u202e\x1b") {
		t.Error(got)
	}
}

func TestContentOfAForm(t *testing.T) {
	q := agent.Question{Schema: json.RawMessage(`{"type":"object","required":["name"],"properties":{
		"name":{"type":"string","title":"Your name"},"age":{"type":"integer"},"size":{"type":"number"},"ok":{"type":"boolean"},"color":{"enum":["red","blue"]},"kind":{"oneOf":[{"const":"a","title":"A"}]}}}`)}
	got := page(t, viewOf(agent.Approval{Agent: "code", Asks: &q}, "soon"))
	for _, want := range []string{"Your name *", `name="field.age"`, `type="checkbox" name="field.ok"`, "<option>blue</option>", "<option>a</option>"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %s:\n%s", want, got)
		}
	}
	b, err := contentOf(q, url.Values{"field.name": {"Ada"}, "field.age": {"36"}, "field.size": {""}, "field.ok": {"yes"}, "field.color": {"red"}, "field.other": {"x"}})
	if err != nil || string(b) != `{"age":36,"color":"red","name":"Ada","ok":true}` {
		t.Errorf("%s %v", b, err)
	}
	for _, bad := range []string{"x", "NaN", "0x10", "1,5"} {
		if _, err := contentOf(q, url.Values{"field.age": {bad}}); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
