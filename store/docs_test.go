package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// addDocs puts a document of each kind: files of a session of the default app, all others in an app.
func addDocs(t *testing.T, s *store.Store, app agent.App, se agent.SessionID) {
	t.Helper()
	body := must(s.PutBlob(t.Context(), []byte("body")))(t)
	put := func(space store.Docs, app agent.App, name string, v any) {
		t.Helper()
		must(s.PutDoc(t.Context(), space, app, name, 0, v))(t)
	}
	put(store.ToolServers, app, "git", agent.ToolServer{App: app, Name: "git", Kind: agent.OpenAPI, Document: body})
	put(store.Policies, app, "default", map[string]string{"text": "read: allow"})
	put(store.Skills, app, "s", agent.Skill{App: app, Name: "s", Files: []agent.SkillFile{{Path: "SKILL.md", Digest: body}}})
	put(store.Allowances, app, "A1", agent.Allowance{App: app, ID: "A1"})
	for _, path := range []string{"a", "b/c"} {
		put(store.Files, agent.DefaultApp, string(se)+"/"+path, agent.File{Session: se, Path: path, Digest: body})
	}
}

// docNames lists a space page by page.
func docNames(t *testing.T, s *store.Store, space store.Docs, prefix string, limit int) (names []string) {
	t.Helper()
	page := agent.Page{Limit: limit}
	for {
		n := 0
		next, err := s.Docs(t.Context(), space, app, prefix, page, func(name string, _ int64, _ []byte) error {
			n++
			names = append(names, name)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n > limit || next == "" && n == 0 && len(names) > 0 {
			t.Fatalf("a page of %d has %d names", limit, n)
		}
		if page.After = next; next == "" {
			return names
		}
	}
}

func TestDocRevisions(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		type doc struct{ V string }
		put := func(rev int64, v string) (int64, error) { return s.PutDoc(ctx, store.Policies, app, "p", rev, doc{v}) }
		_, err := s.Doc(ctx, store.Policies, app, "p", nil)
		wantKind(t, err, agent.NotFound)
		_, err = put(3, "x")
		wantKind(t, err, agent.Conflict)
		first := must(put(0, "<one>"))(t)
		_, err = put(0, "x")
		wantKind(t, err, agent.Exists)
		second := must(put(first, "two"))(t)
		_, err = put(first, "x")
		wantKind(t, err, agent.Conflict)
		var got doc
		if rev := must(s.Doc(ctx, store.Policies, app, "p", &got))(t); rev != second || got.V != "two" || second <= first {
			t.Error(rev, got)
		}
		wantKind(t, s.DeleteDoc(ctx, store.Policies, app, "p", first), agent.Conflict)
		if err := s.DeleteDoc(ctx, store.Policies, app, "p", second); err != nil {
			t.Error(err)
		}
		wantKind(t, s.DeleteDoc(ctx, store.Policies, app, "p", store.AnyRev), agent.NotFound)
		_, err = put(second, "x")
		wantKind(t, err, agent.Conflict)
		// A document that is made anew has no revision that one before had.
		third := must(put(store.AnyRev, "three"))(t)
		if third <= second+1 {
			t.Errorf("revision %d after %d and a deletion", third, second)
		}
		if fourth := must(put(store.AnyRev, "four"))(t); fourth <= third {
			t.Error(fourth)
		}
		if err := s.DeleteDoc(ctx, store.Policies, app, "p", store.AnyRev); err != nil {
			t.Error(err)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestDocBounds(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	long := strings.Repeat("/", store.MaxDocName) // each takes three bytes in a key
	for name, want := range map[string]agent.Kind{
		long: 0, long + "x": agent.Invalid, "": agent.Invalid, "\xff": agent.Invalid, "a\x00b": 0, "é /": 0,
	} {
		_, err := s.PutDoc(ctx, store.Policies, app, name, 0, "v")
		if want == 0 && err == nil {
			var v string
			if _, err := s.Doc(ctx, store.Policies, app, name, &v); err != nil || v != "v" {
				t.Errorf("%.20q: %q, %v", name, v, err)
			}
			continue
		}
		wantKind(t, err, want)
		_, err = s.Doc(ctx, store.Policies, app, name, nil)
		wantKind(t, err, want)
	}
	body := func(n int) error {
		_, err := s.PutDoc(ctx, store.Policies, app, "big", store.AnyRev, strings.Repeat("<", n-2))
		return err
	}
	if err := body(store.MaxDoc); err != nil {
		t.Error(err)
	}
	err := body(store.MaxDoc + 1)
	wantKind(t, err, agent.Invalid)
	if want := "a policy of 245761 bytes is too big: 245760 are allowed"; err.Error() != want {
		t.Errorf("%q", err)
	}
	_, err = s.PutDoc(ctx, store.Policies, app, "x", 0, func() {})
	wantKind(t, err, agent.Invalid)
	_, err = s.PutDoc(ctx, "other", app, "x", 0, 1)
	wantKind(t, err, agent.Invalid)
	_, err = s.PutDoc(ctx, store.Policies, "nowhere", "x", 0, 1)
	wantKind(t, err, agent.NotFound)
	_, err = s.Doc(ctx, store.Policies, "nowhere", "x", nil)
	wantKind(t, err, agent.NotFound)
	// What a document's type says it names must be there.
	_, err = s.PutDoc(ctx, store.ToolServers, app, "x", 0, agent.ToolServer{Document: agent.DigestOf([]byte("none"))})
	wantKind(t, err, agent.NotFound)
	_, err = s.PutDoc(ctx, store.ToolServers, app, "x", 0, 7)
	wantKind(t, err, agent.Invalid)
	for _, name := range []string{"x", "/x", "S/"} {
		_, err = s.PutDoc(ctx, store.Files, app, name, 0, agent.File{})
		wantKind(t, err, agent.Invalid)
	}
	_, err = s.PutDoc(ctx, store.Files, app, "S/x", 0, agent.File{})
	wantKind(t, err, agent.NotFound)
	for _, limit := range []int{-1, agent.MaxPage + 1} {
		_, err = s.Docs(ctx, store.Policies, app, "", agent.Page{Limit: limit}, nil)
		wantKind(t, err, agent.Invalid)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

func TestDocPages(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		want := []string{"a", "a!", "a/", "a/b", "a/b/c", "a0", "ab", "b", "b\x00", "é", "~"}
		for _, name := range want {
			must(s.PutDoc(ctx, store.Policies, app, name, 0, name))(t)
			must(s.PutDoc(ctx, store.Skills, app, name, 0, agent.Skill{Name: name}))(t)
		}
		slices.Sort(want)
		for _, prefix := range []string{"", "a", "a/", "a/b", "b", "\xc3", "z"} {
			var those []string
			for _, name := range want {
				if strings.HasPrefix(name, prefix) {
					those = append(those, name)
				}
			}
			for _, limit := range []int{1, 2, 3, len(want)} {
				if diff := cmp.Diff(those, docNames(t, s, store.Policies, prefix, limit)); diff != "" {
					t.Errorf("prefix %q in pages of %d: %s", prefix, limit, diff)
				}
			}
		}
		first := func(prefix, after string) (string, error) {
			return s.Docs(ctx, store.Policies, app, prefix, agent.Page{Limit: 1, After: after}, func(string, int64, []byte) error { return nil })
		}
		next := must(first("a", ""))(t)
		for _, bad := range []string{"x", "!", next + "A", next[1:]} {
			_, err := first("a", bad)
			wantKind(t, err, agent.Invalid)
		}
		_, err := first("", next)
		wantKind(t, err, agent.Invalid)
		stop := errors.New("stop")
		if _, err := s.Docs(ctx, store.Policies, app, "", agent.Page{}, func(string, int64, []byte) error { return stop }); !errors.Is(err, stop) {
			t.Error(err)
		}
	})
}

// Many documents go with their app, in parts, and an interruption at any of them only delays it.
func TestDocsOfDeletedApp(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	ctx := t.Context()
	shop := agent.AppInfo{Name: "shop", Weight: 1}
	make := func(ctx *countdown) error {
		_, _, err := s.CreateApp(ctx, shop, store.Once{})
		return err
	}
	calm := func() *countdown { return &countdown{Context: ctx, left: 1 << 30} }
	if err := make(calm()); err != nil {
		t.Fatal(err)
	}
	for i := range 2500 {
		must(s.PutDoc(ctx, store.Allowances, "shop", fmt.Sprint(i), 0, agent.Allowance{ID: fmt.Sprint(i)}))(t)
	}
	must(s.PutDoc(ctx, store.Policies, "shop", "p", 0, "v"))(t)
	must(s.PutDoc(ctx, store.Policies, app, "p", 0, "v"))(t)
	if err := s.DeleteApp(&countdown{Context: ctx, left: 1}, "shop"); err != nil {
		t.Fatal(err)
	}
	before, parts := len(keys(t, db, "doc/")), 0
	if before != 2502 {
		t.Fatalf("%d documents", before)
	}
	_, err := s.Doc(ctx, store.Policies, "shop", "p", nil)
	wantKind(t, err, agent.NotFound)
	_, err = s.PutDoc(ctx, store.Policies, "shop", "q", 0, "v")
	wantKind(t, err, agent.NotFound)
	if err := make(&countdown{Context: ctx, left: 1}); !errors.Is(err, errCut) {
		t.Errorf("an app that is not quite gone is made anew: %v", err)
	}
	for {
		err := s.DropDocs(&countdown{Context: ctx, left: 4})
		now := len(keys(t, db, "doc/"))
		if before-now > 2000 {
			t.Fatalf("one part removed %d records", before-now)
		}
		if verr := s.Verify(ctx); verr != nil {
			t.Fatal(verr)
		}
		if before = now; err == nil {
			break
		} else if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		parts++
	}
	if len(keys(t, db, "doc/")) != 1 || len(keys(t, db, "doc-head/")) != 1 || len(keys(t, db, "doc-gone/")) != 0 || parts < 2 {
		t.Errorf("%d documents are left after %d parts", len(keys(t, db, "doc/")), parts)
	}
	if err := make(calm()); err != nil {
		t.Fatal(err)
	}
	must(s.PutDoc(ctx, store.Policies, "shop", "p", 0, "v"))(t)
	// A new app of the name has nothing of the one before, also when it is made at once.
	if err := s.DeleteApp(&countdown{Context: ctx, left: 1}, "shop"); err != nil {
		t.Fatal(err)
	}
	if err := make(calm()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Doc(ctx, store.Policies, "shop", "p", nil)
	wantKind(t, err, agent.NotFound)
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// A head that was lost is missed by who needs it.
func TestDocHeadIsMissed(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	ctx := t.Context()
	must(s.PutDoc(ctx, store.Policies, app, "p", 0, "v"))(t)
	for _, c := range keys(t, db, "doc-head/policies/") {
		apply(t, db, kv.Change{Key: c.Key, Delete: true})
		store.Forget(s)
		_, err := s.PutDoc(ctx, store.Policies, app, "q", 0, "v")
		wantCorrupt(t, err, string(c.Key))
		_, err = s.Doc(ctx, store.Policies, app, "q", nil)
		wantCorrupt(t, err, string(c.Key))
	}
}
