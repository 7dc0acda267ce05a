package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Log names an event log of the server.
type Log struct {
	target string
	filter query
	run    agent.RunID
}

// SessionLog is the log of a session.
func SessionLog(id agent.SessionID) Log { return Log{target: path("sessions", string(id), "events")} }

// RunLog is what its session's log has of one run, up to the run's last event.
func RunLog(id agent.RunID) Log { return Log{target: path("runs", string(id), "events"), run: id} }

// AgentLog is what an agent printed outside of sessions.
func AgentLog(name string) Log { return Log{target: path("agents", name, "logs")} }

// AuditFilter says which events of an audit log are wanted. Empty fields let all pass.
type AuditFilter struct {
	Kind  string // such as "secret.used"
	Agent string // what it did, and what was done to it
	Since string // RFC 3339, or a duration before now
}

// AuditLog is what was changed in the app and what its agents did with their grants.
func AuditLog(f AuditFilter) Log {
	return Log{target: path("audit"), filter: query{"kind": f.Kind, "agent": f.Agent, "since": f.Since}}
}

// Events returns the events of a log that come after the one numbered after. With follow it goes on as events come, until
// the run's last event, ctx's end or the caller's break; else it ends where the log ends now.
//
// A connection that breaks or falls silent is opened again from the last event seen, so each event comes once. An error
// ends the sequence: one that trying again cannot mend, a first connection that failed, or no connection for
// Options.Patience.
func (c *Client) Events(ctx context.Context, l Log, after int64, follow bool) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		s := &listener{c: c, log: l, after: after, follow: follow, yield: yield}
		if err := s.listen(ctx); err != nil {
			yield(agent.Event{}, err)
		}
	}
}

type listener struct {
	c      *Client
	log    Log
	after  int64
	follow bool
	yield  func(agent.Event, error) bool
	heard  bool // since the last failure
	done   bool // nothing more is wanted or can come
}

const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

func (s *listener) listen(ctx context.Context) error {
	connected, pause, lost := false, firstPause, time.Now()
	for {
		s.heard = false
		opened, err := s.connect(ctx)
		if s.done {
			return nil
		}
		connected = connected || opened
		if s.heard {
			pause = firstPause
		}
		if opened {
			lost = time.Now()
		}
		switch {
		case err != nil:
			if !connected || agent.KindOf(err) != agent.Unavailable || time.Since(lost) > s.c.o.Patience {
				return err
			}
		case !s.follow:
			return nil
		case s.log.run != "" && !s.heard: // a clean end without an event: of the run, or of the server
			if run, err := s.c.Run(ctx, s.log.run); err == nil && run.Status.Terminal() {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return s.c.unreachable(ctx, ctx.Err())
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, longPause)
	}
}

// connect reads one connection to its end. opened reports whether there was one; the error is nil after a clean end.
func (s *listener) connect(ctx context.Context) (opened bool, err error) {
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(s.c.o.Silence, cancel)
	defer silence.Stop()

	q := query{"follow": strconv.FormatBool(s.follow)}
	maps.Copy(q, s.log.filter)
	h := header{"Accept": typeNDJSON, "Last-Event-ID": strconv.FormatInt(s.after, 10)}
	res, err := s.c.send(short, "GET", s.log.target+q.encode(), h, nil)
	if err != nil {
		if short.Err() != nil && ctx.Err() == nil {
			err = s.c.unreachable(ctx, err)
		}
		return false, err
	}
	defer res.Body.Close()
	lines := bufio.NewReaderSize(res.Body, 32<<10)
	for {
		b, err := lines.ReadBytes('\n')
		silence.Reset(s.c.o.Silence)
		if err == io.EOF && len(b) == 0 {
			return true, nil
		}
		if err != nil { // a part of a line is a connection that broke
			return true, s.c.unreachable(ctx, err)
		}
		if len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		var e agent.Event
		if err := json.Unmarshal(b, &e); err != nil {
			return true, agent.Wrap(agent.Internal, err, "the server's answer is not understood")
		}
		s.after, s.heard = e.Seq, true
		if !s.yield(e, nil) {
			s.done = true
			return true, nil
		}
		if s.log.run != "" && e.Run == s.log.run && e.Kind.EndsRun() {
			s.done = true
			return true, nil
		}
	}
}
