package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// An app that prints without end has its part of each round, and others' lines are in the next one whatever it does.
func TestALoudAppsLines(t *testing.T) {
	var mu sync.Mutex
	rounds := []map[agent.App]int{{}}
	texts := map[logAddress][]string{}
	b := newLogbook(100_000, func(_ context.Context, to logAddress, evs []agent.Event) error {
		mu.Lock()
		defer mu.Unlock()
		rounds[len(rounds)-1][to.app] += len(evs)
		for _, ev := range evs {
			texts[to] = append(texts[to], string(ev.Data))
		}
		return nil
	})
	loud := []logAddress{{"loud", "a"}, {"loud", "b"}}
	const lines = 1000
	for i := range lines {
		for _, to := range loud {
			b.add(to, agent.Event{Kind: agent.EventLog, Data: fmt.Appendf(nil, `"line %d"`, i)})
		}
	}
	quiet := logAddress{"quiet", "a"}
	b.add(quiet, agent.Event{Kind: agent.EventLog, Data: json.RawMessage(`"quiet"`)})
	for b.flush(t.Context()) {
		rounds = append(rounds, map[agent.App]int{})
	}
	if rounds[0]["quiet"] != 1 {
		t.Errorf("the first round has %v", rounds[0])
	}
	for i, round := range rounds {
		if round["loud"] > logbookRoundLines {
			t.Errorf("round %d has %d lines of one app", i, round["loud"])
		}
	}
	for _, to := range loud {
		for i, text := range texts[to] {
			if text != fmt.Sprintf(`"line %d"`, i) {
				t.Fatalf("line %d of %v is %s", i, to, text)
			}
		}
		if len(texts[to]) != lines {
			t.Errorf("%d lines of %v were written", len(texts[to]), to)
		}
	}
	if b.lines != 0 || b.bytes != 0 || len(b.pages) != 0 {
		t.Errorf("%d lines of %d bytes on %d pages stay", b.lines, b.bytes, len(b.pages))
	}
}

// Where lines are missing, a line says so: there, and once.
func TestLinesThatAreDropped(t *testing.T) {
	var got []string
	b := newLogbook(40, func(_ context.Context, _ logAddress, evs []agent.Event) error {
		for _, ev := range evs {
			got = append(got, string(ev.Data))
		}
		return nil
	})
	to := logAddress{"app", "a"}
	for i := range 15 { // a quarter of the room is 10
		b.add(to, agent.Event{Data: fmt.Appendf(nil, "%d", i)})
	}
	b.flush(t.Context())
	b.add(to, agent.Event{Data: json.RawMessage("15")})
	b.flush(t.Context())
	if all := strings.Join(got, " "); len(got) != 12 || !strings.Contains(got[10], "5 lines dropped") || got[11] != "15" || b.droppedLines() != 5 {
		t.Errorf("the log has %s; %d dropped", all, b.droppedLines())
	}
}
