package inside_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
)

func (r *rig) write(path, content string) error {
	a := &driver.FileArgs{Path: path}
	return r.put(driver.DoWrite, a, func(s *driver.Stream) { a.Stream = s }, nil, whole([]byte(content)))
}

func (r *rig) read(a *driver.FileArgs) (string, error) {
	b, err := r.tryGet(driver.DoRead, a, func(s *driver.Stream) { a.Stream = s }, nil)
	return string(b), err
}

func TestFiles(t *testing.T) {
	r := start(t)
	long := strings.Repeat("0123456789", 100_000)
	if err := r.write("a/b/long", long); err != nil {
		t.Fatal(err)
	}
	if got, err := r.read(&driver.FileArgs{Path: "a/b/long"}); err != nil || got != long {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err := r.read(&driver.FileArgs{Path: filepath.Join(r.work, "a/b/long"), Offset: 12, Length: 5}); err != nil || got != "23456" {
		t.Errorf("%q, %v", got, err)
	}
	if err := r.write("empty", ""); err != nil {
		t.Error(err)
	}
	if got, err := r.read(&driver.FileArgs{Path: "empty"}); err != nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
	do[any](r, driver.DoMakeDir, driver.FileArgs{Path: "d"})
	r.fails(agent.Exists, "there already", driver.DoMakeDir, driver.FileArgs{Path: "d"})
	if err := os.Symlink("a/b/long", filepath.Join(r.work, "link")); err != nil {
		t.Fatal(err)
	}
	flat := do[driver.FileList](r, driver.DoList, driver.FileArgs{})
	if s := names(flat); s != "a:dir d:dir empty:file link:link" {
		t.Errorf("%s", s)
	}
	deep := do[driver.FileList](r, driver.DoList, driver.FileArgs{Recursive: true})
	if s := names(deep); s != "a:dir a/b:dir a/b/long:file d:dir empty:file link:link" {
		t.Errorf("%s", s)
	}
	// What a link points at is written, and the link stays.
	if err := r.write("link", "short"); err != nil {
		t.Error(err)
	}
	if got, _ := r.read(&driver.FileArgs{Path: "a/b/long"}); got != "short" {
		t.Errorf("%q", got)
	}
	r.fails(agent.Invalid, "not empty", driver.DoDelete, driver.FileArgs{Path: "a"})
	do[any](r, driver.DoDelete, driver.FileArgs{Path: "a", Recursive: true})
	r.fails(agent.NotFound, "no file a", driver.DoDelete, driver.FileArgs{Path: "a"})
	r.fails(agent.Invalid, "cannot be deleted", driver.DoDelete, driver.FileArgs{Path: ".", Recursive: true})
	if _, err := r.read(&driver.FileArgs{Path: "d"}); agent.KindOf(err) != agent.Invalid {
		t.Errorf("reading a folder: %v", err)
	}
	if _, err := r.read(&driver.FileArgs{Path: "none"}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("reading nothing: %v", err)
	}
	if err := r.write("d", "x"); agent.KindOf(err) != agent.Invalid {
		t.Errorf("writing over a folder: %v", err)
	}
}

func names(l driver.FileList) string {
	var out []string
	for _, f := range l.Files {
		out = append(out, f.Path+":"+f.Type)
	}
	return strings.Join(out, " ")
}

// A file whose sender goes away half way is as it was, and nothing is left beside it.
func TestCutWriteLeavesTheFile(t *testing.T) {
	r := start(t)
	if err := r.write("f", "whole"); err != nil {
		t.Fatal(err)
	}
	a := &driver.FileArgs{Path: "f"}
	err := r.put(driver.DoWrite, a, func(s *driver.Stream) { a.Stream = s }, nil, func(c link.Conn) {
		c.Write([]byte("half"))
		c.Close()
	})
	if agent.KindOf(err) != agent.Unavailable || !strings.Contains(err.Error(), "not written") {
		t.Errorf("%v", err)
	}
	if got, _ := r.read(&driver.FileArgs{Path: "f"}); got != "whole" {
		t.Errorf("%q", got)
	}
	if s := names(do[driver.FileList](r, driver.DoList, driver.FileArgs{})); s != "f:file" {
		t.Errorf("left is %s", s)
	}
}

func TestArchive(t *testing.T) {
	r := start(t)
	for name, content := range map[string]string{"a/x": "1", "a/y": "22", "b": "333"} {
		if err := r.write(name, content); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink("/usr/bin/env", filepath.Join(r.work, "a/env"))
	a := &driver.ArchiveArgs{Paths: []string{"a"}}
	b := r.get(driver.DoArchive, a, func(s *driver.Stream) { a.Stream = s }, nil)
	r.fails(agent.Invalid, "not within", driver.DoArchive, driver.ArchiveArgs{Paths: []string{"../x"}})
	u := &driver.ArchiveArgs{Dir: "copy"}
	if err := r.put(driver.DoUnpack, u, func(s *driver.Stream) { u.Stream = s }, nil, whole(b)); err != nil {
		t.Fatal(err)
	}
	if s := names(do[driver.FileList](r, driver.DoList, driver.FileArgs{Path: "copy", Recursive: true})); s != "a:dir a/env:link a/x:file a/y:file" {
		t.Errorf("%s", s)
	}
	err := r.put(driver.DoUnpack, u, func(s *driver.Stream) { u.Stream = s }, nil, func(c link.Conn) { c.Write(b[:1000]); c.Close() })
	if agent.KindOf(err) != agent.Unavailable {
		t.Errorf("an archive that is cut: %v", err)
	}
}

// No archive writes outside of its folder: not by names, nor by links, nor by links to links.
func TestUnpackStaysInside(t *testing.T) {
	r := start(t)
	outside := filepath.Join(r.dir, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1, Mode: 0o4777}
	}
	to := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	for name, list := range map[string][]tar.Header{
		"dots":            {file("../outside/x")},
		"absolute":        {file(outside + "/x")},
		"dots within":     {file("a/../../outside/x")},
		"link":            {to("l", outside), file("l/x")},
		"relative link":   {to("l", "../outside"), file("l/x")},
		"link to a link":  {to("a", "."), to("a/l", "../outside"), file("l/x")},
		"folder by link":  {to("l", outside), {Typeflag: tar.TypeDir, Name: "l/x", Mode: 0o755}},
		"hard link":       {{Typeflag: tar.TypeLink, Name: "l", Linkname: "../outside/x"}},
		"device":          {{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}},
		"hard by a link":  {to("l", outside), {Typeflag: tar.TypeLink, Name: "h", Linkname: "l/secret"}},
		"file over links": {to("x", filepath.Join(outside, "x")), file("x/y")},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range list {
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				if h.Typeflag == tar.TypeReg {
					io.WriteString(w, "x")
				}
			}
			w.Close()
			u := &driver.ArchiveArgs{Dir: "in"}
			err := r.put(driver.DoUnpack, u, func(s *driver.Stream) { u.Stream = s }, nil, whole(b.Bytes()))
			if err == nil {
				t.Error("it was unpacked")
			}
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Errorf("outside is %v", left)
			}
			os.RemoveAll(filepath.Join(r.work, "in"))
		})
	}
	// A file over a link replaces the link; nothing is set-user-id.
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{to("x", filepath.Join(outside, "x")), file("x")} {
		w.WriteHeader(&h)
	}
	io.WriteString(w, "x")
	w.Close()
	u := &driver.ArchiveArgs{Dir: "in"}
	if err := r.put(driver.DoUnpack, u, func(s *driver.Stream) { u.Stream = s }, nil, whole(b.Bytes())); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(r.work, "in/x")); err != nil || info.Mode() != 0o777 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("outside is %v", left)
	}
}
