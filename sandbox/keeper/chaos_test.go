package keeper_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/sandbox/keeper"
	"github.com/skep-dev/skep/store"
)

// Servers stop and boxes die at random while others work in them. In the end nothing is left, each event was stored once and in its order, and who worked
// was never answered by what was not there. SKEP_CHAOS sets how many times something dies.
func TestChaos(t *testing.T) {
	deaths := 24
	if n, err := strconv.Atoi(os.Getenv("SKEP_CHAOS")); err == nil {
		deaths = n
	}
	w := newWorld(t)
	env := w.env(nil)
	var mu sync.RWMutex // held while the server is another
	k := w.start(func(o *keeper.Options) { o.Pool = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 3 {
		keep := agent.Cattle
		if i == 0 {
			keep = agent.Pet
		}
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				mu.RLock()
				now := k
				mu.RUnlock()
				b, err := now.Open(ctx, want(env, fmt.Sprint("x/", i), keep))
				if err != nil {
					continue // and again
				}
				var res driver.ExecResult
				line := fmt.Sprintf("echo %d; echo %d >> file; wc -l < file", n, n)
				err = b.Do(ctx, driver.DoExec, &driver.Exec{ID: fmt.Sprint("e", n), Command: []string{line}, Show: true}, &res)
				if out := strings.Fields(res.Stdout); err == nil && res.Code == 0 && (len(out) != 2 || out[0] != fmt.Sprint(n) || out[1] == "0") {
					t.Errorf("%d: %q", n, res.Stdout)
				}
				if keep == agent.Cattle && n%7 == 6 {
					_ = now.Release(ctx, agent.DefaultApp, fmt.Sprint("x/", i)) // a server that stops may not
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range deaths {
		wait(t, "something works", func() bool { return len(w.engine.handles()) > 0 && w.engine.made() > n/2 })
		if r.IntN(3) == 0 {
			mu.Lock()
			k.stop()
			k = w.start(func(o *keeper.Options) { o.Pool = 1 })
			mu.Unlock()
		} else if list := w.engine.handles(); len(list) > 0 {
			w.engine.kill(list[r.IntN(len(list))])
		}
	}
	cancel()
	wg.Wait()
	for i := range 3 {
		rec, err := w.store.SandboxFor(t.Context(), agent.DefaultApp, fmt.Sprint("x/", i))
		if agent.KindOf(err) == agent.NotFound {
			continue
		}
		if err == nil {
			err = k.Delete(t.Context(), agent.DefaultApp, rec.ID)
		}
		if err != nil {
			t.Error(err)
		}
	}
	w.env(func(e *agent.Environment) { e.Description = "the pool goes" })
	k.stop()
	w.start(nil)
	w.empty()
	w.onceEach()
}

// onceEach checks that what each program has said is in the log whole, once and in order, as far as its box lived to tell.
func (w *world) onceEach() {
	w.t.Helper()
	said := map[string]string{}
	for after := int64(0); ; {
		events, err := w.store.Read(w.t.Context(), store.AuditLog(agent.DefaultApp), after, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		after = events[len(events)-1].Seq
		for _, e := range events {
			var d driver.TextData
			if e.Name != driver.ExecOutput {
				continue
			}
			if err := json.Unmarshal(e.Data, &d); err != nil {
				w.t.Fatal(err)
			}
			said[string(e.Run)+" "+d.Item] += d.Text
		}
	}
	if len(said) == 0 {
		w.t.Error("no program has said anything")
	}
	for which, text := range said {
		_, n, _ := strings.Cut(which, " e")
		if f := strings.Fields(text); len(f) > 2 || len(f) > 0 && f[0] != n {
			w.t.Errorf("%s said %q", which, text)
		}
	}
}
