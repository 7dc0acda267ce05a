package runtime_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// anyBoxes are sandboxes that nobody opens.
type anyBoxes struct{ runtime.Boxes }

// An environment is not deleted while an agent is given it, nor is an agent given one that is being deleted.
func TestDeleteEnvironmentBesideAgents(t *testing.T) {
	r := newRig(t, nil, &runtime.Options{Boxes: anyBoxes{}})
	r.agent(agent.Agent{Name: "updated"})
	for i := range 100 {
		if _, err := r.store.PutEnvironment(t.Context(), agent.Environment{App: app, Name: "work", Image: "i"}); err != nil {
			t.Fatal(err)
		}
		use := &agent.SandboxUse{Environment: "work"}
		give := func() error {
			_, err := r.UpdateAgent(t.Context(), app, "updated", runtime.AgentPatch{Sandbox: use})
			return err
		}
		if i%2 == 0 {
			give = func() error {
				_, _, err := r.CreateAgent(t.Context(), agent.Agent{App: app, Name: fmt.Sprint("made", i), Plugin: "code", Sandbox: use}, store.Once{})
				return err
			}
		}
		var given, gone error
		var both sync.WaitGroup
		both.Go(func() { given = give() })
		both.Go(func() { gone = r.DeleteEnvironment(t.Context(), app, "work") })
		both.Wait()
		if kind(given) == "not_found" && gone == nil {
			continue
		}
		if given != nil || kind(gone) != "conflict" {
			t.Fatalf("the agent: %v; the environment: %v", given, gone)
		}
		if _, err := r.UpdateAgent(t.Context(), app, "updated", runtime.AgentPatch{Sandbox: &agent.SandboxUse{}}); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := r.DeleteAgents(t.Context(), app, fmt.Sprint("made", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
