package inside

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzUnpack unpacks what may be anything. Outside of its folder nothing changes.
func FuzzUnpack(f *testing.F) {
	for _, list := range [][]tar.Header{
		{{Typeflag: tar.TypeReg, Name: "a/b", Size: 1, Mode: 0o644}},
		{{Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}, {Typeflag: tar.TypeReg, Name: "l/x", Size: 1}},
		{{Typeflag: tar.TypeLink, Name: "h", Linkname: "../canary"}},
		{{Typeflag: tar.TypeDir, Name: "../d"}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range list {
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			if h.Size > 0 {
				_, _ = w.Write([]byte("x"))
			}
		}
		w.Close()
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		canary := filepath.Join(dir, "canary")
		if err := os.WriteFile(canary, []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = unpack(bytes.NewReader(b), filepath.Join(dir, "in"))
		if c, err := os.ReadFile(canary); err != nil || string(c) != "alive" {
			t.Errorf("the canary is %q %v", c, err)
		}
		if list, _ := os.ReadDir(dir); len(list) > 2 {
			t.Errorf("outside there is %v", list)
		}
		_ = filepath.WalkDir(filepath.Join(dir, "in"), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if info, err := d.Info(); err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
				t.Errorf("%s has the mode %s", name, info.Mode())
			}
			return nil
		})
	})
}

// FuzzRunes takes bytes in pieces: all of the text comes, in whole runes.
func FuzzRunes(f *testing.F) {
	f.Add([]byte("aä😀\xff\xf0\x9f"), 1)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		step = max(1, step)
		var r runes
		var got string
		for rest := b; len(rest) > 0; {
			n := min(step, len(rest))
			piece := r.next(rest[:n])
			if !utf8.ValidString(piece) || len(r.left) > 3 {
				t.Fatalf("%q leaves %q", piece, r.left)
			}
			got += piece
			rest = rest[n:]
		}
		got += r.rest()
		if utf8.Valid(b) && got != string(b) {
			t.Errorf("%q is %q", b, got)
		}
	})
}

// FuzzDiffs reads what git may say of names that a CLI has chosen.
func FuzzDiffs(f *testing.F) {
	f.Add("M\x00a b\x00R100\x00x\x00y\x00A\x00n\x00", "1\t2\ta b\x000\t0\t\x00x\x00y\x00-\t-\tn\x00")
	f.Fuzz(func(t *testing.T, status, counts string) {
		for _, s := range parseStatus(status) {
			if s.Op == "" {
				t.Errorf("%+v", s)
			}
		}
		parseNumstat(counts)
	})
}
