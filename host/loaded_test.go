package host_test

import (
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// Each loading is told once, to whoever it was for, with what it cost; a call that finds the image loads nothing.
func TestLoaded(t *testing.T) {
	var mu sync.Mutex
	var told []host.Loaded
	h, s := open(t, host.Options{Loaded: func(l host.Loaded) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, l)
	}})
	src := script(`let n = 0; for (let i = 0; i < 100000; i++) n += i; export const f = () => n`)
	d := s.put(src)
	for range 3 {
		if _, err := h.Call(t.Context(), host.Call{Plugin: d, Tenant: "shop", Agent: "a", Function: "f"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Prepare(t.Context(), host.Who{App: "shop"}, script(`throw new Error("no")`), nil); err == nil {
		t.Fatal("no error")
	}
	if len(told) != 2 {
		t.Fatalf("told %d times: %+v", len(told), told)
	}
	l := told[0]
	if l.Who.App != "shop" || l.Who.Agent != "a" || l.Err != nil || l.Usage.CPU < 50*time.Microsecond || l.Usage.Wall < l.Usage.CPU ||
		l.Usage.Fuel == 0 || l.Usage.Memory < 1<<20 || l.Usage.In != int64(len(src.Files["agent.ts"])) {
		t.Errorf("loaded: %+v", l)
	}
	if agent.KindOf(told[1].Err) != agent.Failed || told[1].Who.Agent != "" {
		t.Errorf("refused: %+v", told[1])
	}
}
