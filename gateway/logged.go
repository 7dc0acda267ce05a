package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// logging is what is known of a request for its log.
type logging struct {
	size    int // bytes of each text; 0 means that none is written
	request []byte
	more    bool
	last    *agent.UsageEvent
}

// startLog finds out whether the request is logged.
func (x *exchange) startLog() (err error) {
	if x.g.o.Logging == nil || x.g.o.Logged == nil {
		return nil
	}
	if x.logged.size, err = x.g.o.Logging(x.ctx, x.who.App); err != nil || x.logged.size <= 0 {
		return err
	}
	if f, ok := x.to.(*httpFront); ok {
		f.tape = &tape{most: x.logged.size}
	}
	return nil
}

// sent notes what goes to a provider.
func (l *logging) sent(s *shipment) {
	if l.size == 0 {
		return
	}
	b := s.cleanBytes(s.Body) // before it is cut, so that no half of a key stays
	n := min(len(b), l.size)
	l.request, l.more = bytes.Clone(b[:n]), n < len(b)
}

// row notes what the ledger has of a call.
func (l *logging) row(e *agent.UsageEvent) {
	if l.size > 0 {
		l.last = e
	}
}

// writeLog writes the log of a request that came to a call, a refusal by a guardrail, or the cache.
func (x *exchange) writeLog() {
	l := &x.logged
	if l.size == 0 || l.last == nil {
		return
	}
	e, u := l.last, l.last.Model
	out := agent.ModelLog{
		Call: u.Call, App: e.App, Time: x.began.UTC(), Agent: e.Agent, Session: e.Session, Run: e.Run, Key: u.Key, User: u.User, Client: x.protocol, Asked: x.peek.Model,
		Provider: u.Provider, Model: u.Model, Route: u.Route, Attempts: x.attempts, Fault: u.Fault, Source: u.Source, Tokens: u.Tokens, Micro: u.Micro,
		Took: x.g.o.Now().Sub(x.began), Request: text(l.request), Truncated: l.more,
	}
	switch f := x.to.(type) {
	case *httpFront:
		if f.tape != nil {
			n := min(len(f.tape.body), l.size)
			out.Answer, out.Truncated = text(f.tape.body[:n]), out.Truncated || f.tape.over || n < len(f.tape.body)
		}
	case *askFront:
		b, err := json.Marshal(f.answer())
		if err != nil {
			break
		}
		n := min(len(b), l.size)
		out.Answer, out.Truncated = text(b[:n]), out.Truncated || n < len(b)
	}
	x.g.o.Logged(context.WithoutCancel(x.ctx), out)
}

func text(b []byte) string { return strings.ToValidUTF8(string(b), "") }
