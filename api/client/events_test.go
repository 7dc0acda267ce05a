package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// script answers connection after connection to a log.
type script []func(w http.ResponseWriter, after int64)

func (s script) serve(t *testing.T) (*Client, *atomic.Int64) { return s.serveUntil(t, time.Minute) }

// serveUntil is serve for a client that gives a connection up which is silent for so long.
func (s script) serveUntil(t *testing.T, silence time.Duration) (*Client, *atomic.Int64) {
	var n atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := n.Add(1) - 1
		if i >= int64(len(s)) {
			t.Errorf("connection %d was not expected", i+1)
			return
		}
		after, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", typeNDJSON)
		s[i](w, after)
	}))
	t.Cleanup(srv.Close)
	return New(srv.URL, "", &Options{HTTP: srv.Client(), Silence: silence}), &n
}

func send(w http.ResponseWriter, from, to int64, kind agent.EventKind) {
	for seq := from; seq <= to; seq++ {
		b, _ := json.Marshal(agent.Event{Seq: seq, Kind: agent.EventEmit, Run: "R"})
		if seq == to && kind != agent.UnknownEvent {
			b, _ = json.Marshal(agent.Event{Seq: seq, Kind: kind, Run: "R"})
		}
		fmt.Fprintf(w, "%s\n\n", b)
	}
	w.(http.Flusher).Flush()
}

func refuse(status int, kind agent.Kind) func(http.ResponseWriter, int64) {
	return func(w http.ResponseWriter, _ int64) {
		w.Header().Set("Content-Type", typeProblem)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":%q,"detail":"refused"}`, kind)
	}
}

// Each event comes once, through a server that stops, a connection that breaks in the middle of a line, a server that is not
// ready, and one that falls silent.
func TestEventsResume(t *testing.T) {
	silent := make(chan struct{})
	defer close(silent) // the server waits for its handlers
	c, n := script{
		func(w http.ResponseWriter, after int64) { send(w, after+1, 2, 0) },
		func(w http.ResponseWriter, after int64) {
			send(w, after+1, 3, 0)
			fmt.Fprint(w, `{"seq":4,"ki`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		refuse(503, agent.Unavailable),
		func(w http.ResponseWriter, after int64) {
			send(w, after+1, 5, 0)
			<-silent
		},
		func(w http.ResponseWriter, after int64) { send(w, after+1, 6, agent.EventRunCompleted) },
	}.serveUntil(t, time.Second/2)
	want := int64(0)
	for e, err := range c.Events(context.Background(), RunLog("R"), 0, true) {
		if want++; err != nil || e.Seq != want {
			t.Fatalf("%+v %v, want %d", e, err, want)
		}
	}
	if want != 6 || n.Load() != 5 {
		t.Errorf("%d events in %d connections", want, n.Load())
	}
}

func TestEventsEnd(t *testing.T) {
	one := func(w http.ResponseWriter, after int64) { send(w, after+1, after+1, 0) }
	for _, tt := range []struct {
		name   string
		s      script
		follow bool
		events int
		kind   agent.Kind
		failed bool
	}{
		{"at the tail", script{one}, false, 1, 0, false},
		{"refused at first", script{refuse(503, agent.Unavailable)}, true, 0, agent.Unavailable, true},
		{"gone for good", script{one, refuse(404, agent.NotFound)}, true, 1, agent.NotFound, true},
		{"nonsense", script{func(w http.ResponseWriter, _ int64) { fmt.Fprintln(w, "<html>") }}, true, 0, agent.Internal, true},
		{"a proxy's page", script{func(w http.ResponseWriter, _ int64) { w.WriteHeader(403); fmt.Fprintln(w, "<html>") }}, true, 0, agent.Denied, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := tt.s.serve(t)
			events, failed := 0, false
			for _, err := range c.Events(context.Background(), SessionLog("S"), 0, tt.follow) {
				if err == nil {
					events++
					continue
				}
				if failed = true; agent.KindOf(err) != tt.kind {
					t.Errorf("%v", err)
				}
			}
			if events != tt.events || failed != tt.failed {
				t.Errorf("%d events, failed %v", events, failed)
			}
		})
	}
}

func TestEventsBreakAndCancel(t *testing.T) {
	one := func(w http.ResponseWriter, after int64) { send(w, after+1, after+1, 0) }
	c, _ := script{one}.serve(t)
	for range c.Events(context.Background(), SessionLog("S"), 0, true) {
		break
	}
	c, _ = script{one}.serve(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last error
	for _, err := range c.Events(ctx, SessionLog("S"), 0, true) {
		last = err
		cancel()
	}
	if agent.KindOf(last) != agent.Cancelled {
		t.Errorf("%v", last)
	}
}
