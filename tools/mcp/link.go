package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

// legacyRevision is what is offered to a server that does not bear the question for the new one.
const legacyRevision = "2025-11-25"

// link is one connection with a server, which has been introduced.
type link struct {
	k       *keeper
	session *mcp.ClientSession
	conn    mcp.Connection // below session
	proc    *process       // of stdio
	door    *door          // of http and sse
	clean   *scrub.Scrubber
	born    time.Time

	ctx  context.Context // ends with the link
	end  context.CancelCauseFunc
	once sync.Once
	gone chan struct{} // closed when all of it has ended

	mu     sync.Mutex
	calls  map[string]*call           // by progress token
	pages  map[string]json.RawMessage // of the list, by cursor, as they last came
	next   int
	asking int
}

// dial makes a connection.
func (k *keeper) dial(ctx context.Context) (*link, error) {
	l, err := k.dialOnce(ctx, k.revision())
	var auth *needsAuth
	if err == nil || ctx.Err() != nil || k.s.rec.Kind != agent.MCPStdio || k.legacy || errors.As(err, &auth) || errors.Is(err, errNoProcess) {
		return l, err
	}
	// Some programs of old end when the first that they hear is no initialize.
	l, again := k.dialOnce(ctx, legacyRevision)
	if again != nil {
		return nil, err
	}
	k.mu.Lock()
	k.legacy = true
	k.mu.Unlock()
	return l, nil
}

// errNoProcess marks an error of what comes before a program runs.
var errNoProcess = errors.New("not started")

func (k *keeper) revision() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.legacy || k.s.rec.Kind == agent.MCPSSE {
		return legacyRevision
	}
	return ""
}

func (k *keeper) dialOnce(ctx context.Context, revision string) (*link, error) {
	l := &link{k: k, gone: make(chan struct{}), calls: map[string]*call{}, pages: map[string]json.RawMessage{}}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	transport, err := l.transport(ctx)
	if err != nil {
		l.end(err)
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "skep", Title: "Skep", Version: cmp.Or(k.s.o.Version, "dev")}, &mcp.ClientOptions{
		Logger:                      slog.New(slog.DiscardHandler),
		Capabilities:                &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}},
		ElicitationHandler:          l.elicit,
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { k.s.changed() },
		PromptListChangedHandler:    func(context.Context, *mcp.PromptListChangedRequest) { k.s.changed() },
		ResourceListChangedHandler:  func(context.Context, *mcp.ResourceListChangedRequest) { k.s.changed() },
		ProgressNotificationHandler: l.progress,
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true}, // see call.rounds
	})
	client.AddReceivingMiddleware(l.refuse)
	stop := context.AfterFunc(ctx, func() { l.cut(context.Cause(ctx)) })
	l.session, err = client.Connect(ctx, holding{transport, l}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if !stop() || err != nil {
		if err == nil {
			err = context.Cause(ctx)
		}
		return nil, l.unready(err)
	}
	l.born = time.Now()
	k.s.work.Go(func() {
		err := l.session.Wait()
		l.close(err)
	})
	return l, nil
}

// unready ends a link that did not come about, and says why.
func (l *link) unready(err error) error {
	if l.proc != nil {
		waitFor(l.proc.done, 100*time.Millisecond) // most that end, end at once
	}
	said := l.because(err)
	l.close(said)
	return said
}

// transport makes what the SDK speaks over.
func (l *link) transport(ctx context.Context) (mcp.Transport, error) {
	s := l.k.s
	if s.rec.Kind == agent.MCPStdio {
		p, err := s.spawn(ctx)
		if err != nil {
			return nil, errors.Join(err, errNoProcess)
		}
		l.proc, l.clean = p, p.wire.clean
		l.k.mu.Lock()
		l.k.stderr = p.stderr
		l.k.mu.Unlock()
		return given{p.wire}, nil
	}
	d, err := s.newDoor(ctx, l)
	if err != nil {
		return nil, err
	}
	l.door, l.clean = d, d.clean
	client := &http.Client{Transport: d, CheckRedirect: d.redirect}
	if s.rec.Kind == agent.MCPSSE {
		return tapping{&mcp.SSEClientTransport{Endpoint: s.rec.URL, HTTPClient: client, MaxEventSize: -1}, l.ctx}, nil
	}
	return &mcp.StreamableClientTransport{Endpoint: s.rec.URL, HTTPClient: client, MaxEventSize: -1, MaxRetries: 3}, nil
}

// holding is a transport whose connection the link holds as well, to close it where the SDK does not. It gives out the very connection: of some the
// SDK asks more than their interface says.
type holding struct {
	mcp.Transport
	link *link
}

func (h holding) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := h.Transport.Connect(ctx)
	h.link.conn = c
	return c, err
}

// given is a transport of a connection that is there.
type given struct{ mcp.Connection }

func (g given) Connect(context.Context) (mcp.Connection, error) { return g.Connection, nil }

// about says what revision is spoken, and what version the server says it is.
func (l *link) about() (protocol, version string) {
	if r := l.session.InitializeResult(); r != nil {
		protocol = r.ProtocolVersion
		if r.ServerInfo != nil {
			version = kept(r.ServerInfo.Version, 100)
		}
	}
	return protocol, version
}

// wait waits for the end of the link, and says why it ended.
func (l *link) wait() error {
	<-l.gone
	return context.Cause(l.ctx)
}

// cut ends what goes over the link, with a reason, and leaves the rest to close. The first reason stays.
func (l *link) cut(err error) {
	l.end(l.because(err))
	if l.proc != nil {
		_ = l.proc.wire.Close()
	}
	if l.door != nil {
		l.door.stop()
	}
}

// close ends the link and waits until nothing of it is left.
func (l *link) close(err error) {
	l.once.Do(func() {
		defer close(l.gone)
		if l.proc != nil && !errors.Is(err, errClosed) {
			waitFor(l.proc.done, 100*time.Millisecond)
		}
		l.end(l.because(err)) // calls end now, for the SDK would wait for them
		if l.proc != nil {
			l.proc.end()
		}
		if l.door != nil {
			defer time.AfterFunc(leaveAfter, l.door.stop).Stop()
		}
		if l.session != nil {
			_ = l.session.Close()
		}
		if l.conn != nil {
			_ = l.conn.Close()
		}
		if l.door != nil {
			l.door.stop()
		}
	})
	<-l.gone
}

// leaveAfter is how long a server may take to hear that its session has ended.
const leaveAfter = 3 * time.Second

// because says why a link ended in terms of the server.
func (l *link) because(err error) error {
	if errors.Is(err, errClosed) {
		return err
	}
	name := l.k.s.rec.Name
	var e *agent.Error
	if l.proc != nil {
		if bad := l.proc.wire.cause(); errors.As(bad, &e) {
			return bad
		}
		select {
		case <-l.proc.done:
			return &agent.Error{Kind: agent.Unavailable, Msg: "server " + name + " " + l.proc.fate(), Err: err}
		default:
		}
	}
	if l.door != nil {
		if refused := l.door.refusal(); refused != nil {
			return refused
		}
		if bad := l.door.cause(); bad != nil && (err == nil || !errors.As(err, &e)) {
			return bad
		}
	}
	var auth *needsAuth
	if errors.As(err, &auth) {
		return err
	}
	if errors.As(err, &e) {
		return e
	}
	if err == nil {
		return agent.Errorf(agent.Unavailable, "server %s has ended the connection", name)
	}
	return agent.Wrap(agent.Unavailable, err, "server "+name+" cannot be reached: "+plain(l.clean.String(err.Error())))
}

// plain is what an error of the SDK says, without what is only ours.
func plain(text string) string {
	for _, prefix := range []string{`calling "initialize": `, `sending "initialize": `, "rejected by transport: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return kept(text, 500)
}
