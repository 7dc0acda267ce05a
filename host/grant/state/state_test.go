package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/state"
)

// fake is a store that keeps what it is asked and answers with fixed entries.
type fake struct {
	entries []agent.StateEntry
	ranges  []agent.StateRange
	edits   []agent.StateEdit
	bounds  agent.StateGrant
}

func (f *fake) Get(_ context.Context, keys []string) ([]agent.StateEntry, error) {
	if len(keys) > 0 && keys[0] == "broken" {
		return nil, errors.New("secret cause")
	}
	return f.entries, nil
}

func (f *fake) List(_ context.Context, r agent.StateRange) ([]agent.StateEntry, string, error) {
	f.ranges = append(f.ranges, r)
	return f.entries, "z", nil
}

func (f *fake) Edit(_ context.Context, bounds agent.StateGrant, edits []agent.StateEdit) (int64, error) {
	f.edits, f.bounds = edits, bounds
	return 7, nil
}

// door is the door of a cell with the given state grant.
func door(g *agent.StateGrant, s state.Store, refused *[]string) *grant.Door {
	auth := grant.NewAuthority(grant.Subject{Agent: "a"}, func() agent.Grants { return agent.Grants{State: g} }, nil,
		func(_ context.Context, r agent.Refusal) { *refused = append(*refused, r.Reason) })
	handlers := map[string]grant.Handler{}
	state.Add(handlers, auth, s)
	return grant.NewDoor(agent.DefaultLimits(), handlers, nil)
}

func TestReads(t *testing.T) {
	f := &fake{entries: []agent.StateEntry{
		{Key: "j", Version: 1, Value: agent.JSON([]byte(`{"a":null}`))}, {Key: "n", Version: 2, Value: agent.JSON([]byte("null"))},
		{Key: "bad", Version: 3, Value: agent.JSON([]byte("{"))}, {Key: "t", Version: 4, Value: agent.Text("é")},
		{Key: "empty", Version: 5, Value: agent.Text("")}, {Key: "b", Version: 6, Value: agent.Payload{Type: "image/png", Body: []byte{0xff}}},
		{Key: "lone", Version: 7, Value: agent.Text("\xff")},
	}}
	const want = `{"entries":[{"key":"j","version":1,"type":"application/json","json":{"a":null}},` +
		`{"key":"n","version":2,"type":"application/json","json":null},{"key":"bad","version":3,"type":"application/json","base64":"ew=="},` +
		`{"key":"t","version":4,"type":"text/plain; charset=utf-8","text":"é"},{"key":"empty","version":5,"type":"text/plain; charset=utf-8"},` +
		`{"key":"b","version":6,"type":"image/png","base64":"/w=="},{"key":"lone","version":7,"type":"text/plain; charset=utf-8","base64":"/w=="}]`
	d := door(&agent.StateGrant{}, f, new([]string))
	for call, end := range map[string]string{abi.CallStateGet: "}", abi.CallStateList: `,"after":"z"}`} {
		in := `{"keys":["j"]}`
		if call == abi.CallStateList {
			in = `{"prefix":"p","start":"s","end":"e","reverse":true,"after":"a"}`
		}
		out, err := d.Call(t.Context(), call, []byte(in))
		if err != nil || string(out) != want+end {
			t.Errorf("%s: %v\n got %s\nwant %s", call, err, out, want+end)
		}
	}
	if len(f.ranges) != 1 || f.ranges[0] != (agent.StateRange{Prefix: "p", Start: "s", End: "e", Reverse: true, After: "a", Limit: 100}) {
		t.Errorf("%+v", f.ranges)
	}
	if _, err := d.Call(t.Context(), abi.CallStateGet, []byte(`{"keys":["broken"]}`)); agent.KindOf(err) != agent.Internal {
		t.Errorf("%v", err)
	}
}

func TestEdits(t *testing.T) {
	zero, three := int64(0), int64(3)
	for _, tt := range []struct {
		call, in string
		want     []agent.StateEdit
	}{
		{abi.CallStateSet, `{"key":"k","json":{"a": 1}}`, []agent.StateEdit{{Act: agent.StateSet, Key: "k", Value: agent.JSON([]byte(`{"a": 1}`))}}},
		{abi.CallStateSet, `{"key":"k","json":null,"if":0}`, []agent.StateEdit{{Act: agent.StateSet, Key: "k", If: &zero, Value: agent.JSON([]byte(`null`))}}},
		{abi.CallStateSet, `{"key":"k","text":""}`, []agent.StateEdit{{Act: agent.StateSet, Key: "k", Value: agent.Text("")}}},
		{abi.CallStateSet, `{"key":"k","type":"a/b","base64":"AQ=="}`, []agent.StateEdit{{Act: agent.StateSet, Key: "k", Value: agent.Payload{Type: "a/b", Body: []byte{1}}}}},
		{abi.CallStateSet, `{"key":"k"}`, []agent.StateEdit{{Act: agent.StateSet, Key: "k", Value: agent.Payload{Type: agent.TypeBytes}}}},
		{abi.CallStateDelete, `{"key":"k","if":3}`, []agent.StateEdit{{Act: agent.StateDelete, Key: "k", If: &three}}},
		{abi.CallStateBatch, `{"edits":[{"do":"check","key":"c","if":0},{"do":"delete","key":"d"},{"do":"set","key":"s","text":"t"}]}`,
			[]agent.StateEdit{{Act: agent.StateCheck, Key: "c", If: &zero}, {Act: agent.StateDelete, Key: "d"}, {Act: agent.StateSet, Key: "s", Value: agent.Text("t")}}},
		{abi.CallStateBatch, `{"edits":[]}`, nil},
	} {
		f := &fake{}
		out, err := door(&agent.StateGrant{Keys: 5}, f, new([]string)).Call(t.Context(), tt.call, []byte(tt.in))
		if err != nil || string(out) != `{"version":7}` {
			t.Errorf("%s %s: %s, %v", tt.call, tt.in, out, err)
		}
		got, _ := json.Marshal(f.edits)
		want, _ := json.Marshal(tt.want)
		if string(got) != string(want) && len(tt.want)+len(f.edits) > 0 {
			t.Errorf("%s:\n got %s\nwant %s", tt.in, got, want)
		}
		if f.bounds != (agent.StateGrant{Bytes: agent.DefaultStateBytes, Keys: 5}) {
			t.Errorf("bounds %+v", f.bounds)
		}
	}
}

func TestRefusals(t *testing.T) {
	many := `{"edits":[` + strings.Repeat(`{"do":"delete","key":"k"},`, agent.MaxStateEdits) + `{"do":"delete","key":"k"}]}`
	for _, tt := range []struct {
		call, in string
		kind     agent.Kind
		want     string
	}{
		{abi.CallStateGet, `{"key":"k"}`, agent.Invalid, `unknown field "key"`},
		{abi.CallStateSet, `{"key":""}`, agent.Invalid, "key is empty"},
		{abi.CallStateSet, `{"key":"k","json":1,"text":"1"}`, agent.Invalid, "more than one form"},
		{abi.CallStateSet, `{"key":"k","type":"a\nb"}`, agent.Invalid, "media type"},
		{abi.CallStateSet, `{"key":"k","if":-1}`, agent.Invalid, "negative"},
		{abi.CallStateSet, `{"key":"k","text":"` + strings.Repeat("x", agent.MaxStateValue+1) + `"}`, agent.Exhausted, "more than 131072"},
		{abi.CallStateDelete, `{"key":"k","json":1}`, agent.Invalid, "takes no value"},
		{abi.CallStateBatch, `{"edits":[{"do":"delete","key":"k"},{"do":"drop","key":"k"}]}`, agent.Invalid, `edit 2 of the batch: unknown state edit "drop"`},
		{abi.CallStateBatch, `{"edits":[{"do":"unknown","key":"k"}]}`, agent.Invalid, "must be check, set or delete"},
		{abi.CallStateBatch, `{"edits":[{"do":"check","key":"k"}]}`, agent.Invalid, "names no version"},
		{abi.CallStateBatch, many, agent.Invalid, "129 edits are too many"},
	} {
		f := &fake{}
		_, err := door(&agent.StateGrant{}, f, new([]string)).Call(t.Context(), tt.call, []byte(tt.in))
		if e := agent.AsError(err); err == nil || e.Kind != tt.kind || !strings.Contains(e.Msg, tt.want) || f.edits != nil {
			t.Errorf("%s %.90s: %v, want %s with %q", tt.call, tt.in, err, tt.kind, tt.want)
		}
	}
}

// Without the grant nothing reaches the store, and each refusal is written down.
func TestDenied(t *testing.T) {
	for call, in := range map[string]string{
		abi.CallStateGet: `{"keys":["k"]}`, abi.CallStateList: `{}`, abi.CallStateSet: `{"key":"k"}`, abi.CallStateDelete: `{"key":"k"}`,
		abi.CallStateBatch: `{"edits":[]}`,
	} {
		f := &fake{}
		var refused []string
		_, err := door(nil, f, &refused).Call(t.Context(), call, []byte(in))
		if agent.KindOf(err) != agent.Denied || len(refused) != 1 || f.edits != nil || f.ranges != nil {
			t.Errorf("%s: %v, written down %v", call, err, refused)
		}
	}
}

// FuzzState sends any bytes as any state call: what reaches the store is valid, what comes back is JSON.
func FuzzState(f *testing.F) {
	for _, call := range []string{abi.CallStateGet, abi.CallStateList, abi.CallStateSet, abi.CallStateDelete, abi.CallStateBatch} {
		f.Add(call, []byte(`{"keys":["k"]}`))
		f.Add(call, []byte(`{"key":"k","if":0,"type":"a/b","base64":"AQ=="}`))
		f.Add(call, []byte(`{"edits":[{"do":"set","key":"k","json":[null]},{"do":"check","key":"l","if":2}]}`))
		f.Add(call, []byte(`{"prefix":"p","reverse":true,"limit":3}`))
	}
	f.Fuzz(func(t *testing.T, call string, in []byte) {
		s := &fake{}
		out, err := door(&agent.StateGrant{}, s, new([]string)).Call(t.Context(), call, in)
		for _, e := range s.edits {
			if err := e.Check(); err != nil {
				t.Errorf("%q reached the store: %v", in, err)
			}
		}
		if err == nil && !json.Valid(out) {
			t.Errorf("output %q", out)
		}
		if k := agent.KindOf(err); err != nil && k != agent.Invalid && k != agent.Denied && k != agent.Exhausted && !strings.Contains(string(in), "broken") {
			t.Errorf("%s: %v", k, err)
		}
	})
}
