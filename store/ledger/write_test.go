package ledger

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// A write that fails, even half way, counts nothing; the next one takes its place.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), memkv.New(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	l, err := Open(t.Context(), st, dir, &Options{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	e := agent.UsageEvent{Time: time.Now(), Kind: agent.UseCall, App: "default", Agent: "a", Outcome: agent.Succeeded}
	if err := l.Append(e); err != nil {
		t.Fatal(err)
	}
	good := l.file
	if l.file, err = os.Open(good.Name()); err != nil { // it cannot be written
		t.Fatal(err)
	}
	if err := l.Append(e); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("append returned %v", err)
	}
	if _, err := good.WriteAt([]byte("half of a record, and then no more than that"), l.size); err != nil {
		t.Fatal(err)
	}
	l.file.Close()
	l.file = good
	for range 2 {
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := l.Rows(t.Context(), Query{App: "default", From: e.Time, To: e.Time})
	if err != nil || len(rows) != 1 || rows[0].Events != 3 {
		t.Errorf("rows: %+v, %v", rows, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A sync that fails may have lost what it was for: nothing more is taken.
func TestFailedSync(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), memkv.New(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	l, err := Open(t.Context(), st, dir, &Options{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	e := agent.UsageEvent{Time: time.Now(), Kind: agent.UseCall, App: "default", Agent: "a"}
	if err := l.Append(e); err != nil {
		t.Fatal(err)
	}
	l.file.Close()
	if err := l.Sync(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("sync returned %v", err)
	}
	for _, err := range []error{l.Append(e), l.Ready()} {
		if agent.KindOf(err) != agent.Unavailable {
			t.Errorf("then: %v", err)
		}
	}
}

// A field that a later version adds is passed over.
func TestUnknownFields(t *testing.T) {
	e := agent.UsageEvent{Time: time.Unix(1, 2).UTC(), Kind: agent.UseRun, App: "default", Agent: "a", Function: "f", Cost: agent.Cost{CPU: 1 << 62, Fuel: -1}}
	b := appendEvent(nil, recordEvent, &e)[recordHead:]
	b = append(b, 100<<1&0x7f|0x80, 1, 77) // number 100
	b = append(b, 101<<1&0x7f|1|0x80, 1, 3, 'x', 'y', 'z')
	r, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(e, r.event); d != "" {
		t.Error(d)
	}
}

func FuzzDecode(f *testing.F) {
	e := agent.UsageEvent{Time: time.Unix(1, 2).UTC(), Kind: agent.UseRun, App: "default", Agent: "a", Session: "s", Run: "r", Function: "f", Outcome: 3,
		Cost: agent.Cost{CPU: 1, Wall: 2, Memory: 3, In: 4, Out: 5, Sent: 6, Received: 7, HostCalls: 8, Fuel: 9}}
	f.Add(appendEvent(nil, recordEvent, &e)[recordHead:])
	micro := int64(0)
	e.Kind, e.Model = agent.UseModel, &agent.ModelUse{Call: "c", Provider: "p", Model: "m", User: "u", Tokens: agent.ModelTokens{Input: 1, Searches: 2}, Micro: &micro, Raw: "{}"}
	f.Add(appendEvent(nil, recordBegin, &e)[recordHead:])
	f.Add(appendSync(nil, 77)[recordHead:])
	f.Add(appendEnd(nil, ending{1, 2, 3})[recordHead:])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		var again []byte
		switch r.kind {
		case recordEvent, recordBegin:
			again = appendEvent(nil, r.kind, &r.event)
		case recordSync:
			again = appendSync(nil, r.sync)
		case recordEnd:
			again = appendEnd(nil, r.end)
		}
		place(again, 5, 6)
		body, ok := cut(again, 5, 6)
		if !ok {
			t.Fatal("what was placed is not a record")
		}
		if _, ok := cut(again, 5, 7); ok {
			t.Fatal("a record was taken at another place")
		}
		r2, err := decode(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*string{(*string)(&r.event.App), &r.event.Agent, (*string)(&r.event.Session), (*string)(&r.event.Run), &r.event.Function} {
			*s = (*s)[:min(len(*s), maxText)]
		}
		if m := r.event.Model; m != nil {
			for _, s := range []*string{&m.Call, &m.Provider, &m.Model, &m.Route, &m.Key, &m.Secret, &m.User, &m.Prices} {
				*s = (*s)[:min(len(*s), maxText)]
			}
			if len(m.Raw) > agent.MaxRawUsage {
				m.Raw = ""
			}
			if m.Micro != nil {
				*m.Micro = max(*m.Micro, 0)
			}
			if r.event.Kind != agent.UseModel && *m == (agent.ModelUse{}) {
				r.event.Model = nil
			}
		}
		if d := cmp.Diff(r.event, r2.event); d != "" || r.end != r2.end || r.sync != r2.sync {
			t.Error(d)
		}
	})
}

// The end of a call that cannot be written is written when it can.
func TestOwedEnd(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), memkv.New(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	l, err := Open(t.Context(), st, dir, &Options{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	e := agent.UsageEvent{
		Time: time.Now(), Kind: agent.UseModel, App: "default", Agent: "a", Outcome: agent.Succeeded, Model: &agent.ModelUse{Call: "c", Source: agent.Estimated},
	}
	if err := l.Begin(e); err != nil {
		t.Fatal(err)
	}
	good := l.file
	if l.file, err = os.Open(good.Name()); err != nil { // it cannot be written
		t.Fatal(err)
	}
	e.Model.Source, e.Model.Tokens.Output = agent.FromProvider, 5
	if err := l.Append(e); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("append returned %v", err)
	}
	l.file.Close()
	l.file = good
	for range 2 {
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		rows, err := l.Rows(t.Context(), Query{App: "default", From: e.Time, To: e.Time})
		if err != nil || len(rows) != 1 || rows[0].Events != 1 || rows[0].Models.Tokens.Output != 5 || rows[0].Models.Micro != nil || rows[0].Models.Unpriced != 1 {
			t.Errorf("rows: %+v, %v", rows, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
