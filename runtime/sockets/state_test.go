package sockets

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/skep-dev/skep/internal/ws"
)

// apply is RFC 7396, section 2, as it is written there.
func apply(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for name, v := range p {
		if v == nil {
			delete(t, name)
		} else {
			t[name] = apply(t[name], v)
		}
	}
	return t
}

func value(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n == 0:
		return nil
	case n == 1:
		return r.IntN(3) == 0
	case n == 2:
		return float64(r.IntN(3))
	case n == 3:
		return []any{value(r, 0), nil}
	case n > 3 && depth > 0:
		m := map[string]any{}
		for range r.IntN(4) {
			m[string(rune('a'+r.IntN(4)))] = value(r, depth-1)
		}
		return m
	}
	return "<s>"
}

// Whenever there is a patch it leads from the one value to the other; there is one whenever no null has to be said.
func TestDiff(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	patches := 0
	for range 20_000 {
		a, b := value(r, 3), value(r, 3)
		was, _ := json.Marshal(a)
		now, _ := json.Marshal(b)
		p, ok := Diff(was, now)
		if !ok {
			if !hasNull(now) {
				t.Fatalf("no patch from %s to %s", was, now)
			}
			continue
		}
		patches++
		var patch any
		if err := json.Unmarshal(p, &patch); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		if got := apply(a, patch); !reflect.DeepEqual(got, b) {
			t.Fatalf("from %s by %s came %v, not %s", was, p, got, now)
		}
	}
	if patches < 5000 {
		t.Errorf("only %d patches", patches)
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"rpc","id":"1","method":"m","args":[1]}`: "rpc",
		`{"type":"rpc","id":1,"method":"m"}`:              "",
		`{"type":"rpc","id":"1"}`:                         "",
		` {"type":"cf_agent_state","state":null}`:         "state",
		`{"type":"cf_agent_state"}`:                       "",
		`{"type":"skep_hello","events":true}`:             "hello",
		`{"type":"skep_hello","events":7}`:                "",
		`{"type":"mine"}`:                                 "",
		`"type"`:                                          "",
		`{"type":`:                                        "",
		`hello "type"`:                                    "",
	} {
		got := ""
		switch p, ok := Parse(ws.Message{Data: []byte(in)}); {
		case !ok:
		case p.RPC != nil:
			got = "rpc"
		case p.State != nil:
			got = "state"
		case p.Hello != nil:
			got = "hello"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	if _, ok := Parse(ws.Message{Binary: true, Data: []byte(`{"type":"skep_hello"}`)}); ok {
		t.Error("a binary message")
	}
	for in, want := range map[string]bool{`{"type":"ping"}`: true, ` { "type" : "ping" } `: true, `{"type":"ping","id":1}`: false, `ping`: false} {
		if _, ok := Pong(ws.Message{Data: []byte(in)}); ok != want {
			t.Errorf("%s: %v", in, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"type":"rpc","id":"1","method":"m","args":[1]}`)
	f.Add(`{"type":"skep_hello","resume":{"life":1,"state":2,"events":3}}`)
	f.Fuzz(func(t *testing.T, s string) {
		in, ok := Parse(ws.Message{Data: []byte(s)})
		if ok && in.Hello == nil && in.State == nil && in.RPC == nil {
			t.Error("nothing in particular")
		}
		Pong(ws.Message{Data: []byte(s)})
		IsItem(s, "1")
	})
}
