package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

// entries makes a journal of lines: seconds since its beginning, life, kind, call, name, and JSON.
func entries(t *testing.T, lines ...string) (out []agent.JournalEntry) {
	t.Helper()
	for i, line := range lines {
		var at float64
		f := strings.SplitN(line, " ", 6)
		e := agent.JournalEntry{Seq: int64(i + 1), Kind: f[2], Name: strings.TrimPrefix(f[4], "-")}
		for _, n := range []struct {
			text string
			v    any
		}{{f[0], &at}, {f[1], &e.Life}, {f[3], &e.Call}} {
			if err := json.Unmarshal([]byte(n.text), n.v); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		e.Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(at * float64(time.Second)))
		switch {
		case len(f) < 6:
		case e.Kind == "start":
			e.Input, e.Class = json.RawMessage(f[5]), "once"
		case e.Kind == "step":
			e.Input = json.RawMessage(f[5])
		case strings.HasPrefix(f[5], "!"):
			e.Error = &agent.RunError{Kind: agent.Failed, Msg: f[5][1:]}
		default:
			e.Output, e.Bytes = json.RawMessage(f[5]), int64(len(f[5]))
		}
		out = append(out, e)
	}
	return out
}

func TestTree(t *testing.T) {
	tr := newTree()
	for _, e := range entries(t,
		`0 1 begin 0 -`,
		`0.1 1 step 1 - {"name":"charge","attempt":1}`,
		`0.2 1 start 2 http {"method":"POST","url":"https://pay.example/v1/charge"}`,
		`0.7 1 done 2 http {"status":200}`,
		`0.8 1 deliver 2 http`,
		`0.9 1 step 3 - {"name":"charge","attempt":1}`,
		`1 1 start 4 run.wait {"type":"approval"}`,
		`1 1 snapshot 0 - 12345`,
		`1.1 1 commit 0 -`,
		`200000 2 event 0 approval {"by":"Ada"}`,
		`200000 2 deliver 4 run.wait {"data":{"by":"Ada"}}`,
		`200001 2 step 5 - {"name":"a","attempt":1}`,
		`200001 2 step 6 - {"name":"b","attempt":2}`,
		`200001 2 start 7 state.get {"keys":["x","y"]}`,
		`200002 2 step 8 - {"name":"a","attempt":1,"error":"no luck"}`,
		`200002 2 start 9 call.agent {"agent":"mail","key":"ada","function":"send"}`,
		`200003 2 done 9 call.agent !the mail is full`,
		`200003 2 start 10 run.sleep {"for":172800000}`,
		`200003 2 start 11 run.wait "event approval, up to 1h"`,
		`200003 2 start 12 run.sleep "until 2030-01-02T03:04:05Z"`,
		`200003 2 start 13 storage.get "a, b"`,
		`200004 2 done 13 storage.get !the store is away: it was there yesterday, and nobody knows where it has gone since then`,
	) {
		tr.add(e)
	}
	var out bytes.Buffer
	p := treePrinter{c: &cli{stdout: &out}, began: tr.root.At, now: tr.root.At.Add(300_000 * time.Second)}
	p.print(agent.Run{
		ID: "01J", Agent: "order", Function: "ship", Status: agent.Waiting, Lives: 2, Wait: &agent.RunWait{For: "sleep"},
	}, tr.root.Nodes)
	want := strings.TrimPrefix(`
run 01J  order ship  waiting (a time)  2 lives
├─ step charge                                                              +100ms           800ms
│  └─ #2 http POST https://pay.example/v1/charge (once)                     +200ms           600ms  14 B
├─ #4 wait for event approval                                                  +1s         2d7h33m  21 B
├─ snapshot                                                                    +1s                  5 B
├─ commit                                                                    +1.1s
├─ life 2                                                                 +2d7h33m         2d7h33m
├─ event approval                                                         +2d7h33m                  12 B
├─ step a: no luck                                                        +2d7h33m              1s
├─ step b, attempt 2                                                      +2d7h33m  1d3h47m so far
│  ├─ #9 call.agent mail ada send (once): the mail is full                +2d7h33m              1s
│  ├─ #10 wait for 2d                                                     +2d7h33m  1d3h47m so far
│  ├─ #11 wait for event approval, up to 1h                               +2d7h33m  1d3h47m so far
│  ├─ #12 wait until 2030-01-02T03:04:05Z                                 +2d7h33m  1d3h47m so far
│  └─ #13 storage.get a, b (once): the store is away: it was there ye...  +2d7h33m              1s
└─ #7 state.get x y (once)                                                +2d7h33m  1d3h47m so far
`, "\n")
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("%s\n%s", d, out.String())
	}
}
