package worker

import (
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// A pool tells of what is prepared in processes of their own, with what those cost, and of what workers load.
func TestLoaded(t *testing.T) {
	var mu sync.Mutex
	var told []host.Loaded
	p, s := open(t, Options{Host: host.Options{Loaded: func(l host.Loaded) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, l)
	}}})
	src := script(`export const f = () => 1`)
	if _, err := p.Prepare(t.Context(), host.Who{App: "shop"}, src, nil); err != nil {
		t.Fatal(err)
	}
	d := s.put(src)
	for range 3 {
		if _, err := p.Call(t.Context(), host.Call{Plugin: d, Tenant: "shop", Agent: "a", Function: "f"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Prepare(t.Context(), host.Who{App: "shop"}, script(`(`), nil); err == nil {
		t.Fatal("no error")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 3 {
		t.Fatalf("told %d times: %+v", len(told), told)
	}
	for i, agentName := range []string{"", "a", ""} {
		l := told[i]
		if l.Who.App != "shop" || l.Who.Agent != agentName || l.Usage.CPU <= 0 || l.Usage.Wall <= 0 || l.Usage.Memory < 1<<20 || l.Usage.In == 0 {
			t.Errorf("loaded: %+v", l)
		}
	}
	if agent.KindOf(told[2].Err) != agent.Invalid {
		t.Errorf("refused: %+v", told[2])
	}
}
