package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// zeros is so many bytes that take no memory.
type zeros struct{ n int64 }

func (z *zeros) Read(b []byte) (int, error) {
	if z.n == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), z.n)
	clear(b[:n])
	z.n -= n
	return int(n), nil
}

func putFile(t *testing.T, s *store.Store, se agent.SessionID, path, body string) agent.File {
	t.Helper()
	return must(s.PutFile(t.Context(), agent.File{App: app, Session: se, Path: path}, store.AnyRev, strings.NewReader(body)))(t)
}

func TestFiles(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		addAgent(t, s, "a")
		se, other := addSession(t, s, "a").ID, addSession(t, s, "a").ID
		f := putFile(t, s, se, "in/data.csv", "a,b\n1,2\n")
		if f.Size != 8 || f.Type != "text/csv" || f.Digest != agent.DigestOf([]byte("a,b\n1,2\n")) || f.Rev == 0 || f.Created.IsZero() {
			t.Errorf("%+v", f)
		}
		if diff := cmp.Diff(f, must(s.File(ctx, app, se, "in/data.csv"))(t)); diff != "" {
			t.Error(diff)
		}
		// The same again is the same, whatever revision it is put at.
		for _, rev := range []int64{0, 99, store.AnyRev} {
			again, err := s.PutFile(ctx, agent.File{App: app, Session: se, Path: f.Path, Run: "R"}, rev, strings.NewReader("a,b\n1,2\n"))
			if err != nil || !cmp.Equal(again, f) {
				t.Errorf("at %d: %+v, %v", rev, again, err)
			}
		}
		put := func(rev int64, body string) (agent.File, error) {
			return s.PutFile(ctx, agent.File{App: app, Session: se, Path: f.Path}, rev, strings.NewReader(body))
		}
		_, err := put(0, "other")
		wantKind(t, err, agent.Exists)
		_, err = put(f.Rev+1, "other")
		wantKind(t, err, agent.Conflict)
		now := must(put(f.Rev, "other"))(t)
		if now.Rev <= f.Rev || now.Size != 5 || !now.Created.Equal(f.Created) {
			t.Errorf("%+v", now)
		}
		for _, c := range []struct {
			offset, length int64
			want           string
		}{{0, 5, "other"}, {0, 100, "other"}, {1, 3, "the"}, {5, 3, ""}, {9, 1, ""}, {4, 1, "r"}, {0, 0, ""}} {
			got, b, err := s.ReadFile(ctx, app, se, f.Path, c.offset, c.length)
			if err != nil || string(b) != c.want || got.Rev != now.Rev {
				t.Errorf("%+v: %q, %v", c, b, err)
			}
		}
		for _, c := range [][2]int64{{-1, 1}, {0, -1}, {0, store.MaxFileRead + 1}} {
			_, _, err := s.ReadFile(ctx, app, se, f.Path, c[0], c[1])
			wantKind(t, err, agent.Invalid)
		}
		putFile(t, s, se, "in/b.png", "\x89PNG\r\n\x1a\n")
		putFile(t, s, se, "x", "%PDF-1.7")
		putFile(t, s, other, "in/other", "")
		for prefix, want := range map[string]string{
			"": "in/b.png image/png,in/data.csv text/csv,x application/pdf", "in/": "in/b.png image/png,in/data.csv text/csv", "in/d": "in/data.csv text/csv", "y": "",
		} {
			var got []string
			page := agent.Page{Limit: 1}
			for {
				list, next, err := s.Files(ctx, app, se, prefix, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range list {
					got = append(got, f.Path+" "+f.Type)
				}
				if page.After = next; next == "" {
					break
				}
			}
			if strings.Join(got, ",") != want {
				t.Errorf("prefix %q: %q", prefix, got)
			}
		}
		wantKind(t, s.DeleteFile(ctx, app, se, f.Path, f.Rev), agent.Conflict)
		if err := s.DeleteFile(ctx, app, se, f.Path, now.Rev); err != nil {
			t.Error(err)
		}
		wantKind(t, s.DeleteFile(ctx, app, se, f.Path, store.AnyRev), agent.NotFound)
		_, err = s.File(ctx, app, se, f.Path)
		wantKind(t, err, agent.NotFound)
		if err == nil || !strings.Contains(err.Error(), "has no file") {
			t.Error(err)
		}
		for _, id := range []agent.SessionID{"none", "", "a/b"} {
			_, err = s.PutFile(ctx, agent.File{App: app, Session: id, Path: "x"}, 0, strings.NewReader(""))
			if k := agent.KindOf(err); err == nil || k != agent.NotFound && k != agent.Invalid {
				t.Errorf("session %q: %v", id, err)
			}
			_, _, err = s.Files(ctx, app, id, "", agent.Page{})
			wantKind(t, err, agent.NotFound)
		}
		for _, path := range []string{"", "/x", "../x", "a//b", "a/./b", "a\x00", strings.Repeat("x", 513)} {
			_, err = s.PutFile(ctx, agent.File{App: app, Session: se, Path: path}, 0, strings.NewReader(""))
			wantKind(t, err, agent.Invalid)
			_, err = s.File(ctx, app, se, path)
			wantKind(t, err, agent.Invalid)
		}
		_, err = s.PutFile(ctx, agent.File{App: app, Session: se, Path: "x", Type: "no type"}, 0, strings.NewReader(""))
		wantKind(t, err, agent.Invalid)
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestFileSize(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	addAgent(t, s, "a")
	se := addSession(t, s, "a").ID
	put := func(body io.Reader) (agent.File, error) {
		return s.PutFile(ctx, agent.File{App: app, Session: se, Path: "big"}, store.AnyRev, body)
	}
	_, err := put(&zeros{agent.MaxFile + 1})
	wantKind(t, err, agent.Exhausted)
	f := must(put(&zeros{agent.MaxFile}))(t)
	if f.Size != agent.MaxFile {
		t.Errorf("%+v", f)
	}
	_, b, err := s.ReadFile(ctx, app, se, "big", f.Size-2, store.MaxFileRead)
	if err != nil || !bytes.Equal(b, []byte{0, 0}) {
		t.Error(b, err)
	}
	broken := errors.New("broken")
	if _, err := put(io.MultiReader(strings.NewReader("half"), &breaks{broken})); !errors.Is(err, broken) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.PutFile(gone, agent.File{App: app, Session: se, Path: "x"}, 0, strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type breaks struct{ err error }

func (b *breaks) Read([]byte) (int, error) { return 0, b.err }

func TestFileCount(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	ctx := t.Context()
	addAgent(t, s, "a")
	se, other := addSession(t, s, "a").ID, addSession(t, s, "a").ID
	blob := must(s.PutBlob(ctx, nil))(t)
	done := make(chan error)
	const parts = 50
	for p := range parts {
		go func() {
			for i := range agent.MaxFiles / parts {
				_, err := s.PutDoc(ctx, store.Files, app, fmt.Sprintf("%s/%d-%d", se, p, i), 0, agent.File{Digest: blob})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range parts {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.PutFile(ctx, agent.File{App: app, Session: se, Path: "more"}, 0, strings.NewReader(""))
	wantKind(t, err, agent.Exhausted)
	putFile(t, s, se, "0-0", "one that is there can be changed")
	putFile(t, s, other, "more", "")
	if err := s.DeleteFile(ctx, app, se, "1-1", store.AnyRev); err != nil {
		t.Fatal(err)
	}
	putFile(t, s, se, "more", "")
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// A file whose bytes were lost or changed is damage, to who reads it and to who looks.
func TestFileDamage(t *testing.T) {
	db := memkv.New()
	dir := t.TempDir()
	s := openStore(t, db, dir, nil)
	addAgent(t, s, "a")
	se := addSession(t, s, "a").ID
	f := putFile(t, s, se, "x", "bytes")
	doc := keys(t, db, "doc/files/")[0]
	var bad []byte
	bad = append(bad, doc.Value...)
	bad[len(bad)-1] ^= 1
	apply(t, db, kv.Change{Key: doc.Key, Value: bad})
	wantCorrupt(t, s.Verify(t.Context()), string(doc.Key))
	apply(t, db, doc)
	if err := os.WriteFile(filepath.Join(dir, "blobs", f.Digest.Hex()[:2], f.Digest.Hex()[2:]), []byte("bytez"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.ReadFile(t.Context(), app, se, "x", 0, 1)
	wantCorrupt(t, err, string(doc.Key))
	wantCorrupt(t, s.Verify(t.Context()), string(doc.Key))
}
