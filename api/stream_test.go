package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// sse is one server-sent event.
type sse struct{ id, event, data string }

// readSSE returns the next event, and the comments and other fields that came before it.
func readSSE(br *bufio.Reader) (e sse, other []string, err error) {
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return e, other, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.event = value
		case "data":
			e.data = value
		case "":
			if e.data != "" {
				return e, other, nil
			}
		default:
			other = append(other, line)
		}
	}
}

// open opens a stream and ends it with the test.
func (r *rig) open(target, accept string, header ...string) *http.Response {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+target, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Accept", accept)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { cancel(); res.Body.Close() })
	if res.StatusCode != 200 {
		r.t.Fatalf("%s: %s", res.Status, readAll(r.t, res.Body))
	}
	return res
}

func (r *rig) say(id agent.SessionID, text string) agent.Run {
	r.t.Helper()
	run, err := r.c.Send(context.Background(), id, agent.Message{Content: []byte(strconv.Quote(text))})
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

func TestServerSentEvents(t *testing.T) {
	r := start(t, nil)
	s := r.session("a")
	target := "/v1/sessions/" + string(s.ID) + "/events"
	res := r.open(target, typeSSE) // before there is an event: the header comes at once
	if got := res.Header.Get("Content-Type"); got != typeSSE {
		t.Errorf("Content-Type = %q", got)
	}
	run := r.say(s.ID, "hi")
	br := bufio.NewReader(res.Body)
	var kinds []string
	var first sse
	for n := 1; len(kinds) == 0 || kinds[len(kinds)-1] != "run.completed"; n++ {
		e, other, err := readSSE(br)
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			first = e
			if len(other) != 1 || other[0] != "retry: 1000" {
				t.Errorf("before the first event: %q", other)
			}
		}
		var ev agent.Event
		if err := json.Unmarshal([]byte(e.data), &ev); err != nil || e.id != strconv.Itoa(n) || ev.Seq != int64(n) || ev.Run != run.ID {
			t.Errorf("%+v %v", e, err)
		}
		kinds = append(kinds, e.event)
	}
	if d := cmp.Diff([]string{"message", "run.queued", "run.started", "reply", "run.completed"}, kinds); d != "" {
		t.Error(d)
	}

	// Last-Event-ID wins over after, and the events are the same ones.
	br = bufio.NewReader(r.open(target+"?after=3", typeSSE, "Last-Event-ID", "0").Body)
	if e, _, err := readSSE(br); err != nil || e != first {
		t.Errorf("%+v %v, want %+v", e, err, first)
	}
	br = bufio.NewReader(r.open(target+"?after=3", typeSSE).Body)
	if e, _, err := readSSE(br); err != nil || e.id != "4" {
		t.Errorf("%+v %v", e, err)
	}
}

func TestNDJSONAndPages(t *testing.T) {
	r := start(t, nil)
	s := r.session("a")
	one, two := r.say(s.ID, "one"), r.say(s.ID, "two")
	r.wait(one.ID)
	r.wait(two.ID)
	target := "/v1/sessions/" + string(s.ID) + "/events"
	var want []agent.Event
	for line := range strings.SplitSeq(strings.TrimSpace(string(readAll(t, r.open(target+"?follow=false", typeNDJSON).Body))), "\n") {
		var e agent.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		want = append(want, e)
	}
	if len(want) != 10 {
		t.Fatalf("%d events", len(want))
	}
	var got []agent.Event
	for after := "0"; after != ""; {
		var page list[agent.Event]
		if err := json.Unmarshal(r.do("GET", target+"?limit=4&after="+after, "").body, &page); err != nil {
			t.Fatal(err)
		}
		got = append(got, page.Items...)
		after = page.Next
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if b := readAll(t, r.open(target+"?follow=false&after=10", typeSSE).Body); string(b) != "retry: 1000\n\n" {
		t.Errorf("after the last: %q", b)
	}

	// A run's events are those of its session's log that are its own, and end.
	var mine []agent.Event
	for _, e := range want {
		if e.Run == two.ID {
			mine = append(mine, e)
		}
	}
	for _, follow := range []bool{true, false} {
		var got []agent.Event
		for e, err := range r.c.Events(context.Background(), client.RunLog(two.ID), 0, follow) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		if d := cmp.Diff(mine, got); d != "" {
			t.Errorf("follow=%v\n%s", follow, d)
		}
	}
	var page list[agent.Event]
	if err := json.Unmarshal(r.do("GET", "/v1/runs/"+string(two.ID)+"/events", "").body, &page); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(mine, page.Items); d != "" || page.Next != "" {
		t.Errorf("next %q\n%s", page.Next, d)
	}
	for e, err := range r.c.Events(context.Background(), client.RunLog(two.ID), want[9].Seq, true) {
		t.Errorf("past the end of a run: %v %v", e, err)
	}
}

func TestAgentLogs(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	if _, _, err := r.c.Call(context.Background(), "a", "log", agent.Text("printed"), 0); err != nil {
		t.Fatal(err)
	}
	for e, err := range r.c.Events(context.Background(), client.AgentLog("a"), 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != agent.EventLog || !strings.Contains(string(e.Data), "printed") {
			t.Errorf("%+v", e)
		}
		break
	}
}

func TestHeartbeats(t *testing.T) {
	r := start(t, &Options{Heartbeat: 5 * time.Millisecond})
	s := r.session("a")
	target := "/v1/sessions/" + string(s.ID) + "/events"
	for accept, want := range map[string]string{typeSSE: "retry: 1000\n\n:\n\n:\n\n", typeNDJSON: "\n\n"} {
		b := make([]byte, len(want))
		if _, err := io.ReadFull(r.open(target, accept).Body, b); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", accept, b, err)
		}
	}
}

// A listener that goes away without a word is noticed by a heartbeat that fails.
func TestListenerGone(t *testing.T) {
	r := start(t, &Options{Heartbeat: 5 * time.Millisecond})
	s := r.session("a")
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", r.url+"/v1/sessions/"+string(s.ID)+"/events", nil)
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Accept", typeSSE)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.s.rt.Stats().Listeners; n != 1 {
		t.Fatalf("%d listeners", n)
	}
	cancel()
	res.Body.Close()
	until(t, func() bool { return r.s.rt.Stats().Listeners == 0 })
}

// until waits for something that another process or goroutine does without telling.
func until(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(10 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("it did not happen within 10 s")
		}
	}
}

func TestThousandListeners(t *testing.T) {
	const listeners, messages = 1000, 3
	r := start(t, nil)
	s := r.session("a")
	var ready, done sync.WaitGroup
	ready.Add(listeners)
	got := make([]string, listeners)
	hc := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0}}
	defer hc.CloseIdleConnections()
	for i := range listeners {
		done.Go(func() {
			req, _ := http.NewRequest("GET", r.url+"/v1/sessions/"+string(s.ID)+"/events", nil)
			req.Header.Set("Authorization", "Bearer "+r.token)
			req.Header.Set("Accept", typeSSE)
			res, err := hc.Do(req)
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			br := bufio.NewReaderSize(res.Body, 1024)
			var ids []string
			for ends := 0; ends < messages; {
				e, _, err := readSSE(br)
				if err != nil {
					t.Error(err)
					return
				}
				ids = append(ids, e.id)
				if e.event == "run.completed" {
					ends++
				}
			}
			got[i] = strings.Join(ids, " ")
		})
	}
	ready.Wait()
	for i := range messages {
		r.say(s.ID, fmt.Sprint(i))
	}
	done.Wait()
	var want []string
	for i := range 5 * messages {
		want = append(want, strconv.Itoa(i+1))
	}
	for i := range got {
		if got[i] != strings.Join(want, " ") {
			t.Fatalf("listener %d got %s", i, got[i])
		}
	}
	if reads := r.s.rt.Stats().LogReads; reads > 50 {
		t.Errorf("%d reads of the store for %d listeners", reads, listeners)
	}
}
