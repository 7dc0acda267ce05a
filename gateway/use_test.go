package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
)

// Each request is counted once, by the name that its caller may ask for, also when its answer was kept or was asked for more than once. One that is refused reaches
// nobody.
func TestUse(t *testing.T) {
	r := newRig(t)
	up := r.provider("a", agent.MessageProtocol, fails(529, "overloaded_error"))
	r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}}, Models: []string{"claude-*"}, Cache: time.Minute})
	var used []string
	var refuse error
	who := gateway.Caller{App: "default", Models: []string{"@r", "a/*"}, Use: func(_ context.Context, name string) error {
		used = append(used, name)
		return refuse
	}}
	serve := func(model string, status int) {
		t.Helper()
		out := &got{}
		if out.err = r.g.Serve(t.Context(), who, request(agent.MessageProtocol, ask(model, false)), out); out.status != status {
			t.Errorf("%s: %d %v %s", model, out.status, out.err, out.text())
		}
	}
	serve("@r", 529)
	asked := up.calls.Load()
	up.is(good)
	serve("@r", 200)
	serve("@r", 200) // which is kept
	serve("claude-5", 200)
	serve("a/m", 200)
	serve("@none", 404)
	if d := cmp.Diff([]string{"@r", "@r", "@r", "@r", "a/m"}, used); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	before := up.calls.Load()
	refuse = &agent.Error{Kind: agent.Exhausted, Msg: "enough", After: time.Minute}
	serve("a/m", 429)
	if n := up.calls.Load(); n != before || asked < 2 {
		t.Errorf("%d calls, and %d for one that was refused", asked, n-before)
	}
}
