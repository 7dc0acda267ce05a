package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// A creation that is repeated with its Idempotency-Key answers as the first time and makes nothing.
func TestIdempotency(t *testing.T) {
	r := start(t, nil)
	s := r.session("a")
	for i, tt := range []struct{ target, body, other, list string }{
		{"/v1/plugins?name=again", "export {}", "export const x = 2", "/v1/plugins"},
		{"/v1/agents", `{"name":"again","plugin":"code"}`, `{"name":"other","plugin":"code"}`, "/v1/agents"},
		{"/v1/sessions", `{"agent":"a"}`, `{"agent":"a","key":"x"}`, "/v1/sessions"},
		{"/v1/sessions/" + string(s.ID) + "/messages", `{"content":1}`, `{"content":2}`, "/v1/runs"},
		{"/v1/runs", `{"agent":"a","function":"echo"}`, `{"agent":"a","function":"echo","input":1}`, "/v1/runs"},
	} {
		key := fmt.Sprint("key ", i)
		first := r.do("POST", tt.target, tt.body, "Idempotency-Key", key)
		if first.StatusCode/100 != 2 || first.Header.Get("Idempotent-Replayed") != "" {
			t.Fatalf("%s: %s %s", tt.target, first.Status, first.body)
		}
		if tt.list == "/v1/runs" { // the run goes on; the replay answers as at first
			var run agent.Run
			if err := json.Unmarshal(first.body, &run); err != nil {
				t.Fatal(err)
			}
			r.wait(run.ID)
		}
		before := r.do("GET", tt.list, "")
		again := r.do("POST", tt.target, tt.body, "Idempotency-Key", key)
		if again.StatusCode != first.StatusCode || string(again.body) != string(first.body) || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %s %s\nat first %s", tt.target, again.Status, again.body, first.body)
		}
		if after := r.do("GET", tt.list, ""); string(before.body) != string(after.body) {
			t.Errorf("%s: the repetition made something:\n%s\n%s", tt.target, before.body, after.body)
		}
		other := r.do("POST", tt.target, tt.other, "Idempotency-Key", key)
		if other.StatusCode != 409 || other.problem(t).Kind != agent.Conflict {
			t.Errorf("%s: another request: %s %s", tt.target, other.Status, other.body)
		}
	}
}

func TestTokenIsMadeOnce(t *testing.T) {
	r := start(t, nil)
	post := func(body, key string) reply { return r.do("POST", "/v1/tokens", body, "Idempotency-Key", key) }
	if res := post(`{"name":"NOT VALID"}`, "k"); res.StatusCode != 400 {
		t.Fatalf("%s %s", res.Status, res.body)
	}
	if res := post(`{"name":"ci"}`, "k"); res.StatusCode != 201 {
		t.Fatalf("%s %s", res.Status, res.body)
	}
	if res := post(`{"name":"ci"}`, "k"); res.StatusCode != 409 || !strings.Contains(string(res.body), "cannot be shown again") {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if res := post(`{"name":"ci"}`, "other"); res.StatusCode != 201 {
		t.Errorf("%s %s", res.Status, res.body)
	}
}
