package tools

import (
	"testing"
	"testing/synctest"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// isClosed reports whether a channel is, once all has come to rest.
func isClosed(ch <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		f := &fake{offers: []Offer{offerOf("a", nil)}}
		other := r.Changed("other")
		list := func() {
			t.Helper()
			if _, err := r.Tools(t.Context(), agent.DefaultApp); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			what string
			do   func()
			want bool
		}{
			{"a server is added", func() { r.add(t, "fs", f) }, true},
			{"its first list", list, true},
			{"the same list", list, false},
			{"the server says so", func() { f.set(offerOf("a", nil), offerOf("b", nil)) }, true},
			{"a list of what it said", list, true},
			{"a tool is classified", func() {
				if _, err := r.Classify(t.Context(), agent.DefaultApp, []Classified{{"fs.a", agent.Read}}); err != nil {
					t.Fatal(err)
				}
			}, true},
			{"an agent was changed", func() { r.Touch(agent.DefaultApp) }, true},
			{"a call", func() {
				if _, err := r.Call(t.Context(), agent.Tool{Name: "fs.a", Server: "fs", Method: "a"}, &CallOptions{For: agent.ToolCall{App: agent.DefaultApp}}, []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}, false},
			{"the server fails", func() { f.set(); f.mu.Lock(); f.err = agent.Errorf(agent.Unavailable, "gone"); f.mu.Unlock(); list() }, true},
			{"the server is removed", func() {
				if err := r.Remove(t.Context(), agent.DefaultApp, "fs"); err != nil {
					t.Fatal(err)
				}
			}, true},
			{"nothing", list, false},
		} {
			ch := r.Changed(agent.DefaultApp)
			c.do()
			if isClosed(ch) != c.want {
				t.Errorf("%s: told is %v, want %v", c.what, !c.want, c.want)
			}
		}
		if isClosed(other) {
			t.Error("another app was told")
		}
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		if _, _, err := r.store.CreateApp(t.Context(), agent.AppInfo{Name: "shop", Weight: 1}, store.Once{}); err != nil {
			t.Fatal(err)
		}
		shop := func(s *agent.ToolServer) { s.App = "shop" }
		fakes := map[agent.App]*fake{agent.DefaultApp: {offers: []Offer{offerOf("a", nil)}}, "shop": {offers: []Offer{offerOf("a", nil)}}}
		r.add(t, "one", fakes[agent.DefaultApp])
		r.add(t, "two", fakes["shop"], shop)
		for app := range fakes {
			if _, err := r.indexOf(t.Context(), app); err != nil {
				t.Fatal(err)
			}
		}
		ch := r.Changed("shop")
		if err := r.store.DeleteApp(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		r.Forget("shop")
		if !isClosed(ch) {
			t.Error("nobody was told")
		}
		for app, f := range fakes {
			f.mu.Lock()
			closed := f.closed
			f.mu.Unlock()
			if closed != (app == "shop") {
				t.Errorf("the source of %s is closed: %v", app, closed)
			}
		}
		if len(r.entries) != 1 || len(r.indices) != 1 {
			t.Errorf("%d entries and %d indices are left", len(r.entries), len(r.indices))
		}
	})
}
