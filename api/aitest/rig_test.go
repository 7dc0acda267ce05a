package aitest

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/embed"
	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/response"
	transport "github.com/skep-dev/skep/gateway/upstream"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/store/memkv"
)

const (
	virtualKey = "skm_the-virtual-key-of-the-clients"
	vendorKey  = "sk-the-key-of-the-vendor"
)

// rig is a server with the model gateway, and one HTTP server that is all the providers.
type rig struct {
	url   string
	st    *store.Store
	usage *ledger.Ledger
	up    *upstream
}

func serve(t *testing.T) *rig {
	t.Helper()
	ctx := context.Background()
	dir := t.TempDir()
	db := memkv.New()
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	usage, err := ledger.Open(ctx, st, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	up := &upstream{cells: map[string]*played{}}
	vendors := httptest.NewServer(up)
	tr := transport.New(&http.Transport{MaxIdleConnsPerHost: 256})
	g := gateway.New(&gateway.Options{
		Codecs:  []wire.Codec{chat.Codec, response.Codec, message.Codec, gemini.Codec, embed.Codec},
		Records: gateway.FromStore(st), Ledger: usage, Public: tr, Backoff: time.Millisecond,
		Secret: func(context.Context, agent.App, string, string, string) (string, error) { return vendorKey, nil },
	})
	rt := runtime.New(st, runtimetest.New(nil), &runtime.Options{Ledger: usage})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up.url = vendors.URL
	r := &rig{url: "http://" + ln.Addr().String() + "/ai", st: st, usage: usage, up: up}
	run, cancel := context.WithCancel(ctx)
	var both sync.WaitGroup
	var served, ran error
	both.Go(func() { served = api.New(rt, st, &api.Options{Models: g}).Run(run, ln) })
	both.Go(func() { ran = rt.Run(run) })
	t.Cleanup(func() {
		vendors.CloseClientConnections()
		cancel()
		both.Wait()
		vendors.Close()
		tr.CloseIdleConnections()
		if err := errors.Join(served, ran, g.Close(), usage.Close(), st.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	k := agent.ModelKey{ID: string(agent.NewTokenID(time.Now())), Name: "clients", App: agent.DefaultApp}
	if err := st.PutModelKey(ctx, k, sha256.Sum256([]byte(virtualKey))); err != nil {
		t.Fatal(err)
	}
	return r
}

// add makes the provider of a cell, so that how it fares is of no concern to other cells.
func (r *rig) add(t *testing.T, c cell) {
	t.Helper()
	v := vendorOf(c.upstream)
	p := agent.Provider{
		Name: c.name(), App: agent.DefaultApp, URL: r.up.url + "/" + c.name() + v.base, Protocols: []agent.Protocol{v.protocol},
		Keys: []agent.ProviderKey{{Secret: "k"}},
	}
	if c.kind.reply[0].fault == "stall" && c.kind.name != "abort" {
		p.Idle = 300 * time.Millisecond
	}
	if _, err := r.st.PutDoc(t.Context(), store.Providers, agent.DefaultApp, p.Name, 0, p); err != nil {
		t.Fatal(err)
	}
	r.up.mu.Lock()
	seen := make(chan struct{})
	r.up.cells[c.name()] = &played{cell: c, seen: seen, saw: sync.OnceFunc(func() { close(seen) })}
	r.up.mu.Unlock()
}

// rows are the rows of the ledger by the provider's name. It waits until there are n, since those of calls that were given up come a little later.
func (r *rig) rows(t *testing.T, n int) map[string][]agent.UsageEvent {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(10 * time.Second); ; {
		by, total, after := map[string][]agent.UsageEvent{}, 0, ""
		for {
			list, next, err := r.usage.Events(t.Context(), ledger.Query{App: agent.DefaultApp, To: time.Now().Add(time.Hour)}, after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if e.Model != nil {
					by[e.Model.Provider] = append(by[e.Model.Provider], e.UsageEvent)
					total++
				}
			}
			if after = next; next == "" {
				break
			}
		}
		if total >= n {
			return by
		}
		select {
		case <-tick.C:
		case <-late:
			return by
		}
	}
}
