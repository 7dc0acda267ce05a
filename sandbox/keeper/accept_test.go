package keeper_test

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/keeper"
)

// TestAccept has a provider that lacks what all boxes need.
func TestAccept(t *testing.T) {
	w := newWorld(t)
	w.engine.lacks = []string{sandbox.NoNetwork, sandbox.LimitPids, sandbox.ImageContent}
	plain := w.env(nil)
	admit := func(accept []string, env *agent.Environment, want string) {
		t.Helper()
		k := w.start(func(o *keeper.Options) { o.Accept = accept })
		defer k.stop()
		err := k.Admit(t.Context(), env, agent.Cattle)
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			return
		}
		wantKind(t, err, agent.Invalid, want)
	}
	admit(nil, &plain, sandbox.NoNetwork)
	admit([]string{sandbox.NoNetwork}, &plain, sandbox.LimitPids)
	both := []string{sandbox.NoNetwork, sandbox.LimitPids}
	admit(both, &plain, "")
	strict := w.env(func(e *agent.Environment) { e.Requires = []string{sandbox.NoNetwork} })
	admit(both, &strict, sandbox.NoNetwork) // the environment's own word stays
	packed := w.env(func(e *agent.Environment) { e.Packages = []string{"deb:git"} })
	admit(both, &packed, sandbox.ImageContent)
	other := w.env(func(e *agent.Environment) { e.Runtime = "runsc" })
	admit(both, &other, `no runtime "runsc"; it has runc`)

	k := w.start(nil)
	if e := agent.AsError(k.Admit(t.Context(), &plain, agent.Cattle)); e == nil || !strings.Contains(e.Hint, "--sandbox-accept") {
		t.Errorf("it does not say what can be done: %+v", e)
	}
	for _, name := range []string{sandbox.SocketMount, sandbox.CanPause, "nothing"} {
		o := w.options()
		o.Accept = []string{name}
		_, err := keeper.New(o)
		wantKind(t, err, agent.Invalid, name)
	}
}
