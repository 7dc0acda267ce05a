package egress

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"golang.org/x/sync/semaphore"
)

const (
	idlePerHost = 8
	idlePerPool = 32
	idleFor     = 30 * time.Second
)

// pool holds the connections of one owner.
type pool struct {
	owner     Owner
	transport *http.Transport
	slots     *semaphore.Weighted
	users     int
	place     *list.Element
}

// pools keeps those of the owners that were here last. A pool in use is never let go.
type pools struct {
	mu     sync.Mutex
	by     map[Owner]*pool
	recent *list.List // of *pool, the last one first
	most   int
	make   func() (*http.Transport, *semaphore.Weighted)
}

func (p *pools) init(most int, make func() (*http.Transport, *semaphore.Weighted)) {
	p.by, p.recent, p.most, p.make = map[Owner]*pool{}, list.New(), most, make
}

// take returns the owner's pool, which its user gives back.
func (p *pools) take(o Owner) *pool {
	p.mu.Lock()
	x := p.by[o]
	if x == nil {
		x = &pool{owner: o}
		x.transport, x.slots = p.make()
		x.place = p.recent.PushFront(x)
		p.by[o] = x
	}
	x.users++
	p.recent.MoveToFront(x.place)
	old := p.trim()
	p.mu.Unlock()
	closeAll(old)
	return x
}

func (p *pools) give(x *pool) {
	p.mu.Lock()
	x.users--
	old := p.trim()
	p.mu.Unlock()
	closeAll(old)
}

// trim takes out pools that nobody uses until there are no more than most, and returns them.
func (p *pools) trim() (old []*pool) {
	for at := p.recent.Back(); at != nil && p.recent.Len() > p.most; {
		x, before := at.Value.(*pool), at.Prev()
		if x.users == 0 {
			p.recent.Remove(at)
			delete(p.by, x.owner)
			old = append(old, x)
		}
		at = before
	}
	return old
}

func (p *pools) close() {
	p.mu.Lock()
	all := make([]*pool, 0, len(p.by))
	for _, x := range p.by {
		all = append(all, x)
	}
	p.mu.Unlock()
	closeAll(all)
}

func closeAll(list []*pool) {
	for _, x := range list {
		x.transport.CloseIdleConnections()
	}
}

func (e *Egress) newTransport() (*http.Transport, *semaphore.Weighted) {
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	secure := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: e.roots, NextProtos: []string{"h2", "http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(idlePerPool),
	}
	return &http.Transport{ // Proxy stays nil: the environment's proxies are not for agents
		DialContext:            e.dialer.connectTo,
		DialTLSContext:         func(ctx context.Context, _, to string) (net.Conn, error) { return e.dialer.connectTLS(ctx, to, secure) },
		DisableCompression:     true,
		MaxIdleConns:           idlePerPool,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: e.limits.ResponseHeader,
		Protocols:              &both,
	}, semaphore.NewWeighted(int64(e.limits.PerOwner))
}

// admit waits for a slot of the owner's and one of the process.
func (e *Egress) admit(ctx context.Context, x *pool, l *Limits) error {
	full := func(who string, most int) error {
		return &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitHTTP, After: time.Second,
			Msg: who + " had as many outbound requests at once as may be, " + itoa(most) + ", for " + l.Wait.String(),
		}
	}
	if err := acquire(ctx, x.slots, l.Wait); err != nil {
		return orCause(ctx, full(ownerName(x.owner), e.limits.PerOwner))
	}
	if err := acquire(ctx, e.all, l.Wait); err != nil {
		x.slots.Release(1)
		return orCause(ctx, full("this server", e.limits.Concurrent))
	}
	return nil
}

func acquire(ctx context.Context, s *semaphore.Weighted, wait time.Duration) error {
	if s.TryAcquire(1) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.Acquire(ctx, 1)
}

func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return causeOf(ctx)
	}
	return err
}

func ownerName(o Owner) string {
	if o.Agent == "" {
		return "code that runs once"
	}
	return `agent "` + o.Agent + `"`
}
