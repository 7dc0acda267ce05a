package checkpoint

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

// pack makes a tar of files with a text each.
func pack(t testing.TB, files ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range files {
		text := strings.Repeat("x", int(h.Size))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestKeep(t *testing.T) {
	body := pack(t, tar.Header{Name: "memory/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "memory/a", Mode: 0o640, Size: 3},
		tar.Header{Name: "memory/l", Typeflag: tar.TypeSymlink, Linkname: "a"})
	var kept bytes.Buffer
	put := func(r io.Reader) error { _, err := io.Copy(&kept, r); return err }
	got, err := Keep(bytes.NewReader(body), put)
	if err != nil || !bytes.Equal(kept.Bytes(), body) {
		t.Fatalf("%d bytes of %d, %v", kept.Len(), len(body), err)
	}
	want := []File{
		{Path: "memory/", Type: "dir", Mode: 0o755},
		{Path: "memory/a", Type: "file", Mode: 0o640, Size: 3, Digest: "cd2eb0837c9b4c962c22d2ff8b5441b7b45805887f051d39bf133b583baf6860"},
		{Path: "memory/l", Type: "link", Target: "a"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	full := errors.New("the disk is full")
	if _, err := Keep(bytes.NewReader(body), func(io.Reader) error { return full }); !errors.Is(err, full) {
		t.Error(err)
	}
	cut := agent.Errorf(agent.Unavailable, "it was cut off")
	if _, err := Keep(io.MultiReader(bytes.NewReader(body[:700]), failing{cut}), put); agent.KindOf(err) != agent.Unavailable {
		t.Error(err)
	}
	for what, bad := range map[string][]byte{
		"no tar": []byte(strings.Repeat("no tar ", 200)), "half": body[:1026],
	} {
		if _, err := Keep(bytes.NewReader(bad), put); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := Keep(bytes.NewReader(make([]byte, 1024)), put); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Too many files are refused, whatever they are.
func TestListIsBounded(t *testing.T) {
	files := make([]tar.Header, maxFiles+1)
	for i := range files {
		files[i] = tar.Header{Name: "a"}
	}
	if _, err := List(bytes.NewReader(pack(t, files[:maxFiles]...))); err != nil {
		t.Error(err)
	}
	if _, err := List(bytes.NewReader(pack(t, files...))); agent.KindOf(err) != agent.Exhausted {
		t.Error(err)
	}
}

// Whatever a box sends is listed or refused.
func FuzzList(f *testing.F) {
	f.Add(pack(f, tar.Header{Name: "memory/a", Size: 3}, tar.Header{Name: "memory/l", Typeflag: tar.TypeSymlink, Linkname: "a"}))
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := List(bytes.NewReader(b))
		if err != nil && agent.KindOf(err) != agent.Invalid && agent.KindOf(err) != agent.Exhausted {
			t.Error(err)
		}
		for _, f := range list {
			if (f.Type == "file") != (f.Digest != "") {
				t.Errorf("%+v", f)
			}
		}
	})
}
