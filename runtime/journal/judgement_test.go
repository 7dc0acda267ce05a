package journal

import (
	"encoding/json"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// TestPermits asks what an approved change set permits, of a view that lives and of one that is made of the same entries anew.
func TestPermits(t *testing.T) {
	call := func(tool, args string, undo bool) JudgedCall {
		return JudgedCall{Tool: tool, Digest: agent.DigestOf([]byte(tool)), Args: agent.DigestOf([]byte(args)), Undo: undo}
	}
	write, undo, next := call("fs.write", "1", false), call("fs.delete", "1", true), call("fs.write", "2", false)
	judged := func(n uint64, name string, asks bool, j Judgement) Entry {
		b, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		return Entry{Kind: Judged, Call: n, Name: name, Flag: asks, Out: b}
	}
	entries := []Entry{
		judged(1, abi.CallToolChange, true, Judgement{Calls: []JudgedCall{write, undo, next}}),
		{Kind: Verdict, Call: 1, Flag: true, Out: []byte("{}")},
	}
	live := NewView()
	for _, e := range entries {
		live.Add(e)
	}
	for i, c := range []struct {
		call JudgedCall
		want uint64
	}{
		{undo, 0}, // before what it would take back
		{call("fs.delete", "1", false), 0},
		{call("fs.write", "3", false), 0},
		{call("fs.write", "1", true), 0},
		{write, 1},
		{write, 0},
		{call("fs.delete", "2", true), 0}, // another than was approved
		{JudgedCall{Tool: undo.Tool, Digest: agent.DigestOf([]byte("changed")), Args: undo.Args, Undo: true}, 0},
		{undo, 1},
		{undo, 0},
		{next, 1},
	} {
		n := uint64(i + 2)
		anew := NewView()
		for _, e := range entries {
			anew.Add(e)
		}
		for what, v := range map[string]*View{"live": live, "anew": anew} {
			if got := v.Permit(n, c.call); got != c.want {
				t.Errorf("call %d, %s %s: %d, want %d (%s)", n, c.call.Tool, c.call.Args, got, c.want, what)
			}
			if got := v.Permit(n, c.call); got != c.want {
				t.Errorf("call %d, asked again: %d, want %d (%s)", n, got, c.want, what)
			}
		}
		e := judged(n, abi.CallTool, false, Judgement{Calls: []JudgedCall{c.call}, Change: c.want})
		live.Add(e)
		entries = append(entries, e)
	}
}
