// Package door is what a box finds at its Unix socket beside the driver's own connection: the gateway of models below driver.ModelPath, and an HTTP proxy,
// which is the box's one way out. Requests by the proxy are made for the box by package egress, under the rules of a cell's: they have one canonical form,
// are judged by method, host and path, get their secrets here, and reach public addresses alone. TLS ends here, too, under an authority that only the box
// trusts, so that nothing passes unseen. docs/design/sandbox-door.md tells it whole.
package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/httpfront"
	"github.com/skep-dev/skep/host/egress"
)

// Way is the way out of one box. It is safe for concurrent use.
type Way interface {
	// Reach says whether a host and port may be asked for anything by TLS, or why not. Nothing was resolved or dialled then. to has no path, and the method
	// CONNECT.
	Reach(ctx context.Context, to agent.Request) error
	// Client makes one request.
	Client() Client
}

// Client makes one request, as that of package host/grant/http does.
type Client interface {
	// Do judges and makes the request, of which the Owner, the Limits and Observe are for it to set. It gives up when ctx ends, and so does the response's
	// body, which is the caller's to close.
	Do(ctx context.Context, r *egress.Request) (*egress.Response, error)
	// Still returns why what Do was allowed is allowed no more, or nil. It is called beside reads of the body.
	Still(ctx context.Context) error
}

// Options of a Door.
type Options struct {
	Box    agent.SandboxID
	Models *gateway.Gateway // nil means that there are no models
	Key    string           // by which the box asks for models: what else is sent is refused; "" refuses everything. See ModelKey
	// Caller says for whom the box asks for models at this moment. Its Models must not be nil, for that would mean all. Its error is Unauthenticated once the
	// key is good for nothing, such as when the run has ended.
	Caller func(ctx context.Context) (gateway.Caller, error)
	Way    Way    // nil means that nothing outside can be reached
	Secret []byte // the authority's key is made of it and of Box, so that boxes trust the next server's, too; random unless given
	// Refused is told what the box asked for and did not get. Of much at once it is told a part. It sets Agent and Run.
	Refused func(ctx context.Context, r agent.Refusal)
	Log     *slog.Logger // nil means nowhere
}

// Bounds of a box.
const (
	MaxConnections = 64          // by the proxy at once, tunnels and requests
	MaxModels      = 32          // requests to models at once
	MaxHeader      = 64 << 10    // bytes of a request's header
	idle           = time.Minute // of a tunnel without a request, and of a body without a byte
	handshake      = 10 * time.Second
	maxURL         = 16 << 10
)

// Door is the handler of one box. It is safe for concurrent use.
type Door struct {
	o       Options
	ca      *authority
	front   http.Handler
	tunnels http.Server // serves what is within tunnels
	proxied chan struct{}
	asking  chan struct{}
	told    told

	mu     sync.Mutex
	closed bool
	last   uint64
	cuts   map[uint64]context.CancelFunc
}

// New returns the door of a box. It starts nothing; Close it when the box is gone.
func New(o *Options) (*Door, error) {
	d := &Door{o: *o, proxied: make(chan struct{}, MaxConnections), asking: make(chan struct{}, MaxModels), cuts: map[uint64]context.CancelFunc{}}
	if d.o.Log == nil {
		d.o.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if d.ca, err = newAuthority(o.Box, o.Secret); err != nil {
		return nil, err
	}
	if o.Models != nil {
		d.front = httpfront.New(&httpfront.Options{Gateway: o.Models, Prefix: driver.ModelPath, Admit: d.admit})
	}
	d.tunnels = http.Server{
		Handler: http.HandlerFunc(d.within), ReadHeaderTimeout: idle, IdleTimeout: idle, MaxHeaderBytes: MaxHeader, ConnContext: withTarget, DisableGeneralOptionsHandler: true,
		ErrorLog: log.New(io.Discard, "", 0), // it says what clients did wrong
	}
	return d, nil
}

// CA is the certificate, in PEM, of the authority whose certificates the proxy shows. It is for the box alone.
func (d *Door) CA() string { return d.ca.pem }

// Close cuts what is under way, and refuses what comes. It may be called twice.
func (d *Door) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, cut := range d.cuts {
		cut()
	}
	return d.tunnels.Close()
}

// ServeHTTP answers one request of the box. The server around it has no write timeout, and bounds the header to MaxHeader.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer d.recover(r)
	ctx, leave, err := d.enter(r.Context())
	if err != nil {
		answer(w, err)
		return
	}
	defer leave()
	r = r.WithContext(ctx)
	switch {
	case r.Method == http.MethodConnect:
		d.connect(w, r)
	case isModels(r):
		d.models(w, r)
	case r.URL.IsAbs():
		d.plain(w, r)
	default:
		answer(w, &agent.Error{
			Kind: agent.NotFound, Msg: "there is nothing here but models at " + driver.ModelPath + ", and a proxy", Hint: "a request to a proxy names a whole URL, or is a CONNECT",
		})
	}
}

// enter lets a request in. Its context ends with the door.
func (d *Door) enter(ctx context.Context) (context.Context, context.CancelFunc, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, agent.Errorf(agent.Unavailable, "this sandbox is closed")
	}
	ctx, cancel := context.WithCancel(ctx)
	d.last++
	id := d.last
	d.cuts[id] = cancel
	return ctx, func() {
		cancel()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.cuts, id)
	}, nil
}

// recover keeps a fault of ours from being lost in the log of net/http.
func (d *Door) recover(r *http.Request) {
	switch p := recover(); {
	case p == nil:
	case p == http.ErrAbortHandler:
		panic(p)
	default:
		d.o.Log.Error("a request of a sandbox", "sandbox", d.o.Box, "method", r.Method, "error", fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
		panic(http.ErrAbortHandler)
	}
}

// isModels reports whether a request is for the gateway of models: also by the proxy, for some clients send what is for loopback there, too.
func isModels(r *http.Request) bool {
	if r.URL.IsAbs() && !(r.URL.Scheme == "http" && r.URL.User == nil && (r.URL.Host == driver.RelayAddr || r.URL.Host == relayName)) {
		return false
	}
	return r.URL.Path == driver.ModelPath || strings.HasPrefix(r.URL.Path, driver.ModelPath+"/")
}

const relayName = "localhost:18080" // driver.RelayAddr by its other name

// models answers a request to a model.
func (d *Door) models(w http.ResponseWriter, r *http.Request) {
	if d.front == nil {
		answer(w, agent.Errorf(agent.NotFound, "this server has no model gateway"))
		return
	}
	if !take(d.asking) {
		answer(w, full("requests to models", MaxModels))
		return
	}
	defer give(d.asking)
	d.front.ServeHTTP(w, r)
}

func take(slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func give(slots chan struct{}) { <-slots }

func full(what string, most int) error {
	return &agent.Error{
		Kind: agent.Exhausted, Limit: agent.LimitHTTP, After: time.Second, Msg: fmt.Sprintf("the sandbox has as many %s at once as may be, %d", what, most),
	}
}

// aborted reports whether err is of a client that has gone, which needs no answer.
func aborted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (agent.KindOf(err) == agent.Cancelled || errors.Is(err, context.Canceled))
}
