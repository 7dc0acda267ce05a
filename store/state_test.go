package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// wide bounds a state that a test does not mean to fill.
var wide = agent.StateGrant{Bytes: agent.MaxStateBytes, Keys: agent.MaxStateKeys}

func set(key, value string) agent.StateEdit {
	return agent.StateEdit{Act: agent.StateSet, Key: key, Value: agent.Text(value)}
}
func del(key string) agent.StateEdit { return agent.StateEdit{Act: agent.StateDelete, Key: key} }
func check(key string, version int64) agent.StateEdit {
	return agent.StateEdit{Act: agent.StateCheck, Key: key, If: &version}
}
func when(e agent.StateEdit, version int64) agent.StateEdit {
	e.If = &version
	return e
}

// edit makes edits that must work.
func edit(t testing.TB, s *store.Store, o store.Owner, edits ...agent.StateEdit) int64 {
	t.Helper()
	return must(s.EditState(t.Context(), o, wide, edits...))(t)
}

// content returns a whole state as "key=value", page by page.
func content(t testing.TB, s *store.Store, o store.Owner, r agent.StateRange) []string {
	t.Helper()
	out := []string{}
	for {
		page, next, err := s.ListState(t.Context(), o, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			out = append(out, e.Key+"="+string(e.Value.Body))
		}
		if next == "" {
			return out
		}
		r.After = next
	}
}

func TestState(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		o := store.AgentState(app, addAgent(t, s, "a").ID)
		if got := must(s.State(t.Context(), o, "k"))(t); len(got) != 0 {
			t.Fatal(got)
		}
		if v := edit(t, s, o, set("k", "one"), agent.StateEdit{Act: agent.StateSet, Key: "é/ü", Value: agent.JSON([]byte("null"))}); v != 1 {
			t.Errorf("version %d", v)
		}
		if v := edit(t, s, o, set("k", "two"), set("k", "")); v != 2 {
			t.Errorf("version %d", v)
		}
		got := must(s.State(t.Context(), o, "é/ü", "none", "k"))(t)
		want := []agent.StateEntry{{Key: "é/ü", Version: 1, Value: agent.JSON([]byte("null"))}, {Key: "k", Version: 2, Value: agent.Text("")}}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if v := edit(t, s, o, del("none")); v != 2 {
			t.Errorf("deleting nothing is commit %d", v)
		}
		edit(t, s, o, del("k"))
		if v := edit(t, s, o, when(set("k", "x"), 0)); v != 4 {
			t.Errorf("a key made anew has version %d", v)
		}
		if size := must(s.StateSize(t.Context(), o))(t); size != (agent.StateSize{Bytes: 11, Keys: 2}) {
			t.Errorf("size %+v", size)
		}
	})
}

func TestStateConflicts(t *testing.T) {
	s := memStore(t)
	o := store.AgentState(app, addAgent(t, s, "a").ID)
	edit(t, s, o, set("k", "1"))
	edit(t, s, o, set("k", "2"), set("l", "2"))
	for _, tt := range []struct {
		edits []agent.StateEdit
		want  string
	}{
		{[]agent.StateEdit{when(set("k", "x"), 1)}, `state key "k" has version 2, not 1`},
		{[]agent.StateEdit{when(set("k", "x"), 0)}, `state key "k" is there already, with version 2`},
		{[]agent.StateEdit{when(del("m"), 3)}, `state key "m" is not there`},
		{[]agent.StateEdit{set("m", "x"), del("l"), check("k", 1)}, `state key "k" has version 2, not 1`},
		{[]agent.StateEdit{set("m", "x"), check("m", 3)}, `state key "m" is not there`}, // as before the commit
	} {
		_, err := s.EditState(t.Context(), o, wide, tt.edits...)
		wantKind(t, err, agent.Conflict)
		if err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	if d := cmp.Diff([]string{"k=2", "l=2"}, content(t, s, o, agent.StateRange{})); d != "" {
		t.Errorf("a commit that failed left something:\n%s", d)
	}
	if v := edit(t, s, o, check("k", 2), check("m", 0)); v != 2 {
		t.Errorf("checks made commit %d", v)
	}
	if v := edit(t, s, o, check("k", 2), when(set("k", "3"), 2), when(del("k"), 2), set("m", "3")); v != 3 {
		t.Errorf("version %d", v)
	}
	if d := cmp.Diff([]string{"l=2", "m=3"}, content(t, s, o, agent.StateRange{})); d != "" {
		t.Error(d)
	}
}

func TestStateBounds(t *testing.T) {
	s := memStore(t)
	o := store.AgentState(app, addAgent(t, s, "a").ID)
	long := func(n int) string { return strings.Repeat("x", n) }
	many := make([]agent.StateEdit, agent.MaxStateEdits+1)
	for i := range many {
		many[i] = set(fmt.Sprint(i), "")
	}
	for _, tt := range []struct {
		name    string
		at, at1 []agent.StateEdit // what is allowed, and one past it
		kind    agent.Kind
	}{
		{"key", []agent.StateEdit{set(long(agent.MaxStateKey), "")}, []agent.StateEdit{set(long(agent.MaxStateKey+1), "")}, agent.Invalid},
		{"key without a byte", []agent.StateEdit{set("x", "")}, []agent.StateEdit{set("", "")}, agent.Invalid},
		{"UTF-8", []agent.StateEdit{set("\u07ff", "")}, []agent.StateEdit{set("\xff", "")}, agent.Invalid},
		{"value", []agent.StateEdit{set("k", long(agent.MaxStateValue))}, []agent.StateEdit{set("k", long(agent.MaxStateValue+1))}, agent.Exhausted},
		{"edits", many[1:], many, agent.Invalid},
		{"bytes", edits(8, agent.MaxStateValue-1), append(edits(8, agent.MaxStateValue-1), del("z")), agent.Invalid},
		{"type", []agent.StateEdit{{Act: agent.StateSet, Key: "k", Value: agent.Payload{Type: long(255)}}},
			[]agent.StateEdit{{Act: agent.StateSet, Key: "k", Value: agent.Payload{Type: long(256)}}}, agent.Invalid},
	} {
		if _, err := s.EditState(t.Context(), o, wide, tt.at...); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if _, err := s.EditState(t.Context(), o, wide, tt.at1...); err == nil || agent.KindOf(err) != tt.kind {
			t.Errorf("%s past its edge: %v", tt.name, err)
		}
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// edits sets n one-byte keys to values of so many bytes.
func edits(n, size int) (out []agent.StateEdit) {
	for i := range n {
		out = append(out, set(string(rune('a'+i)), strings.Repeat("x", size)))
	}
	return out
}

func TestStateQuota(t *testing.T) {
	s := memStore(t)
	o := store.AgentState(app, addAgent(t, s, "a").ID)
	bounds := agent.StateGrant{Bytes: 10, Keys: 3}
	put := func(edits ...agent.StateEdit) error {
		_, err := s.EditState(t.Context(), o, bounds, edits...)
		if e := agent.AsError(err); err != nil && (e.Kind != agent.Exhausted || e.Limit != agent.LimitState) {
			t.Fatalf("%v is no limit", err)
		}
		return err
	}
	for i, tt := range []struct {
		edits []agent.StateEdit
		ok    bool
	}{
		{[]agent.StateEdit{set("a", "123456789")}, true}, // 10 bytes
		{[]agent.StateEdit{set("a", "1234567890")}, false},
		{[]agent.StateEdit{set("b", "")}, false},
		{[]agent.StateEdit{del("a"), set("b", "123456789")}, true},
		{[]agent.StateEdit{set("b", ""), set("c", ""), set("d", "")}, true}, // 3 keys
		{[]agent.StateEdit{set("e", "")}, false},
		{[]agent.StateEdit{set("e", ""), del("d")}, true},
	} {
		if err := put(tt.edits...); (err == nil) != tt.ok {
			t.Errorf("%d: %v", i, err)
		}
	}
	edit(t, s, o, set("b", "123456789"), set("f", "123456789"))
	if err := put(set("b", "12345678"), del("f")); err != nil { // over its bounds still, and smaller
		t.Error(err)
	}
}

// Sixty-four writers at once never get past the bounds, and what they were told is what is there.
func TestStateQuotaUnderContention(t *testing.T) {
	for _, bounds := range []agent.StateGrant{{Bytes: 10_000, Keys: 100}, {Bytes: 909, Keys: 1000}} { // an entry has 9 bytes
		s := memStore(t)
		o := store.AgentState(app, addAgent(t, s, "a").ID)
		var all sync.WaitGroup
		var kept atomic.Int64
		for w := range 64 {
			all.Go(func() {
				for i := range 10 {
					_, err := s.EditState(t.Context(), o, bounds, set(fmt.Sprintf("%02d-%d", w, i), "12345"))
					if err == nil {
						kept.Add(1)
					} else if agent.AsError(err).Limit != agent.LimitState {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		want := min(bounds.Keys, bounds.Bytes/9)
		size := must(s.StateSize(t.Context(), o))(t)
		if kept.Load() != want || size != (agent.StateSize{Bytes: 9 * want, Keys: want}) {
			t.Errorf("%+v: %d were kept, the state has %+v", bounds, kept.Load(), size)
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// weird are keys that sort badly where their bytes do not decide.
var weird = []string{
	"\x00", "\x00\x00", "\x01", "\t", " ", " a", "!", "!!", "!2", "\"", "#", "%2f", "-", ".", "..", ".2f", "/", "//", "/a", "0", "A", "a", "a\x00",
	"a ", "a!", "a.", "a/", "a/b", "a/b/c", "a0", "aa", "at", "head", "z", "{", "|", "}", "~", "~7e", "~~", "\x7f", "\u0080", "é", "é/ü", "\u07ff",
	"\u0800", "日本", "\uffff", "\U0001f41d", "\U0010ffff",
}

func TestStateOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		o := store.AgentState(app, addAgent(t, s, "a").ID)
		mixed := slices.Clone(weird)
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		for _, k := range mixed {
			edit(t, s, o, set(k, k))
		}
		all := slices.Sorted(slices.Values(weird))
		bounds := append([]string{""}, all...)
		for _, limit := range []int{1, 7, 1000} {
			for _, reverse := range []bool{false, true} {
				for i, b := range bounds {
					for _, r := range []agent.StateRange{{Prefix: b}, {Start: b}, {End: b}, {Start: b, End: bounds[(i*7+3)%len(bounds)]}} {
						r.Limit, r.Reverse = limit, reverse
						want := []string{}
						for _, k := range all {
							if strings.HasPrefix(k, r.Prefix) && k >= r.Start && (r.End == "" || k < r.End) {
								want = append(want, k+"="+k)
							}
						}
						if reverse {
							slices.Reverse(want)
						}
						if d := cmp.Diff(want, content(t, s, o, r)); d != "" {
							t.Fatalf("%+v:\n%s", r, d)
						}
					}
				}
			}
		}
	})
}

func TestStatePages(t *testing.T) {
	s := memStore(t)
	o := store.AgentState(app, addAgent(t, s, "a").ID)
	for i := range 20 {
		edit(t, s, o, set(fmt.Sprintf("k%02d", i), strings.Repeat("x", agent.MaxStateValue)))
	}
	page, next, err := s.ListState(t.Context(), o, agent.StateRange{})
	if err != nil || len(page) != 8 || next != "k07" {
		t.Errorf("a page of large values has %d, then comes %q, %v", len(page), next, err)
	}
	// Writes between two pages: what was there all the time is seen once.
	edit(t, s, o, set("k03x", "new"), del("k09"), set("k11x", "new"), del("k07"))
	page, next, err = s.ListState(t.Context(), o, agent.StateRange{After: next, Limit: 4})
	var got []string
	for _, e := range page {
		got = append(got, e.Key)
	}
	if err != nil || next != "k11x" || !slices.Equal(got, []string{"k08", "k10", "k11", "k11x"}) {
		t.Errorf("%v then %q, %v", got, next, err)
	}
	for _, r := range []agent.StateRange{{Limit: -1}, {Limit: agent.MaxPage + 1}, {Prefix: strings.Repeat("x", agent.MaxStateKey+1)}} {
		_, _, err := s.ListState(t.Context(), o, r)
		wantKind(t, err, agent.Invalid)
	}
}

// States of agents, of apps, and of an agent made anew are apart.
func TestStateIsPrivate(t *testing.T) {
	s := memStore(t)
	make := func(in agent.App, name string) store.Owner {
		a, _, err := s.CreateAgent(t.Context(), agent.Agent{App: in, Name: name}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		return store.AgentState(in, a.ID)
	}
	for _, name := range []agent.App{"one", "two"} {
		if _, _, err := s.CreateApp(t.Context(), agent.AppInfo{Name: name, Weight: 1}, store.Once{}); err != nil {
			t.Fatal(err)
		}
	}
	owners := []store.Owner{make("one", "a"), make("one", "b"), make("two", "a")}
	for i, o := range owners {
		edit(t, s, o, set("k", fmt.Sprint(i)))
	}
	if err := s.DeleteAgents(t.Context(), "one", "a"); err != nil {
		t.Fatal(err)
	}
	anew := make("one", "a")
	for i, want := range map[store.Owner]string{owners[1]: "k=1", owners[2]: "k=2"} {
		if got := content(t, s, i, agent.StateRange{}); !slices.Equal(got, []string{want}) {
			t.Errorf("%v has %v", i, got)
		}
	}
	if got := content(t, s, anew, agent.StateRange{}); len(got) > 0 {
		t.Errorf("made anew: %v", got)
	}
	_, err := s.State(t.Context(), owners[0], "k")
	wantKind(t, err, agent.NotFound)
	_, err = s.EditState(t.Context(), owners[0], wide, set("k", "x"))
	wantKind(t, err, agent.NotFound)
	for _, o := range []store.Owner{store.AgentState("one", "../x"), store.AgentState("", ""), {}} {
		_, err := s.State(t.Context(), o, "k")
		wantKind(t, err, agent.NotFound)
	}
}

var errCut = errors.New("cut")

// Much state is removed in parts, and an interruption at any of them only delays it.
func TestDropStates(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	for _, name := range []string{"a", "b"} {
		o := store.AgentState(app, addAgent(t, s, name).ID)
		for i := range 25 {
			var es []agent.StateEdit
			for j := range 100 {
				es = append(es, set(fmt.Sprintf("%d-%d", i, j), "v"))
			}
			edit(t, s, o, es...)
		}
	}
	addAgent(t, s, "c")
	if err := s.DeleteAgents(t.Context(), app, "a", "c"); err != nil {
		t.Fatal(err)
	}
	before, parts := len(keys(t, db, "state/")), 0
	for {
		ctx := &countdown{Context: t.Context(), left: 3}
		err := s.DropStates(ctx)
		now := len(keys(t, db, "state/"))
		if before-now > 2001 {
			t.Fatalf("one part removed %d records", before-now)
		}
		if verr := s.Verify(t.Context()); verr != nil {
			t.Fatal(verr)
		}
		if before = now; err == nil {
			break
		} else if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		parts++
	}
	if n := len(keys(t, db, "state/")); n != 2501 || len(keys(t, db, "state-gone/")) > 0 || parts < 2 {
		t.Errorf("%d records are left after %d parts", n, parts)
	}
}

func FuzzEscape(f *testing.F) {
	for _, k := range weird {
		f.Add(k, "a"+k)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		ea, eb := store.Escaped(a), store.Escaped(b)
		if strings.Compare(a, b) != strings.Compare(ea, eb) || strings.HasPrefix(a, b) != strings.HasPrefix(ea, eb) {
			t.Errorf("%q and %q become %q and %q", a, b, ea, eb)
		}
		if strings.ContainsFunc(ea, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
			t.Errorf("%q becomes %q", a, ea)
		}
		if back, err := store.Unescaped(ea); err != nil || back != a {
			t.Errorf("%q comes back as %q, %v", a, back, err)
		}
		if back, err := store.Unescaped(a); err == nil && store.Escaped(back) != a {
			t.Errorf("%q stands for %q, which is written %q", a, back, store.Escaped(back))
		}
	})
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add([]byte("\x01\x0atext/plainabc"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		version, v, err := store.DecodeEntry(b)
		if err != nil {
			return
		}
		again, w, err := store.DecodeEntry(store.EncodeEntry(version, v))
		if err != nil || again != version || w.Type != v.Type || !bytes.Equal(w.Body, v.Body) {
			t.Errorf("%x becomes %d %v and then %d %v, %v", b, version, v, again, w, err)
		}
	})
}

// countdown is a context that ends after its error was asked for so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return errCut
	}
	return nil
}
