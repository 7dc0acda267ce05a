package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// With max_tokens the answer to code with tools is one for a model, and of bounded size.
func TestCodeForModels(t *testing.T) {
	r := start(t, nil)
	r.cells.Funcs["default"] = r.cells.Funcs["echo"]
	for _, tokens := range []string{"-1", "399"} {
		if res := r.do("POST", "/v1/code", `{"code":"export default 1","tools":[],"max_tokens":`+tokens+`}`); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s tokens: %s %s", tokens, res.Status, res.body)
		}
	}
	for _, tokens := range []string{"0", "400"} {
		res := r.do("POST", "/v1/code", `{"code":"x","tools":[],"input":"`+strings.Repeat("long ", 5000)+`","max_tokens":`+tokens+`}`)
		var got struct {
			Status string
			Output json.RawMessage
			Reply  *struct{ Status, Notice string }
		}
		if err := json.Unmarshal(res.body, &got); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s tokens: %s %.300s, %v", tokens, res.Status, res.body, err)
		}
		model := tokens == "400"
		if (got.Reply != nil) != model || (got.Output != nil) == model || got.Status != "completed" {
			t.Errorf("%s tokens: %.500s", tokens, res.body)
		}
		if model && (got.Reply.Status != "completed" || !strings.Contains(got.Reply.Notice, "shown are") || len(res.body) > 400*4+1000) {
			t.Errorf("reply of %d bytes: %.500s", len(res.body), res.body)
		}
	}
}
