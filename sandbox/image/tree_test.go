package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// folder makes files by name; a content that begins with -> is a link.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(target, file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func packed(t *testing.T, tr *tree) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := (layer{tree: tr}).writeTo(t.Context(), &b, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// listed reads a tar: name, and mode, kind, owner, link and content of each.
func listed(t *testing.T, b []byte) map[string]string {
	t.Helper()
	list := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := list[h.Name]; ok {
			t.Errorf("%s is there twice", h.Name)
		}
		if !h.ModTime.Equal(epoch) {
			t.Errorf("%s is of %s", h.Name, h.ModTime)
		}
		list[h.Name] = strings.TrimSpace(h.FileInfo().Mode().String() + " " + h.Linkname + string(text))
		if h.Uid != 0 {
			list[h.Name] += " of the agent"
		}
	}
}

func TestSameFilesMakeTheSameTar(t *testing.T) {
	files := map[string]string{"a/b": "one", "a/c/d": "two", "e": "->a/b", "a-b": "three"}
	make := func(when time.Time, mode fs.FileMode) []byte {
		dir := folder(t, files)
		if err := os.Chtimes(filepath.Join(dir, "a/b"), when, when); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "a/b"), mode); err != nil {
			t.Fatal(err)
		}
		tr := newTree()
		if err := tr.copyTree("/x", dir, nil); err != nil {
			t.Fatal(err)
		}
		layout(tr)
		return packed(t, tr)
	}
	first := make(time.Now(), 0o600)
	if again := make(time.Unix(1e9, 0), 0o664); !bytes.Equal(first, again) {
		t.Error("the same files at another time, of another umask, make another tar")
	}
	if run := make(time.Now(), 0o755); bytes.Equal(first, run) {
		t.Error("a program and a file are the same")
	}
	want := map[string]string{
		"x/": "drwxr-xr-x", "x/a/": "drwxr-xr-x", "x/a/b": "-rw-r--r-- one", "x/a/c/": "drwxr-xr-x", "x/a/c/d": "-rw-r--r-- two", "x/a-b": "-rw-r--r-- three",
		"x/e": "Lrwxrwxrwx a/b", "home/": "drwxr-xr-x", "home/agent/": "drwx------  of the agent", "workspace/": "drwxr-xr-x  of the agent", "run/": "drwxr-xr-x",
		"run/skep/": "drwxr-xr-x",
	}
	got := listed(t, first)
	for name, is := range want {
		want[name] = strings.ReplaceAll(is, "  ", " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAddingAgainReplaces(t *testing.T) {
	tr := newTree()
	tr.write("/bin/x", 0o644, "text")
	tr.write("/bin/x", 0o755, "text")
	if got := listed(t, packed(t, tr)); got["bin/x"] != "-rwxr-xr-x text" || len(got) != 2 {
		t.Errorf("after a change of the mode there is %q", got)
	}
	if tr.size() != 4 {
		t.Errorf("it has %d bytes", tr.size())
	}
}

func TestWayOutOfAPackageIsRefused(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"up":       {"a/link": "->../../etc"},
		"absolute": {"link": "->/etc/passwd"},
		"deep":     {"a/b/link": "->../../../x"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newTree().copyTree("/x", folder(t, files), nil); agent.KindOf(err) != agent.Denied {
				t.Errorf("the link was taken: %v", err)
			}
		})
	}
	inside := folder(t, map[string]string{"a/link": "->../b", "b": "x"})
	if err := newTree().copyTree("/x", inside, nil); err != nil {
		t.Errorf("a link within: %v", err)
	}
	if err := syscall.Mkfifo(filepath.Join(inside, "pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	if err := newTree().copyTree("/x", inside, nil); agent.KindOf(err) != agent.Denied {
		t.Errorf("a pipe: %v", err)
	}
}

func TestHostPathKeepsItsLinks(t *testing.T) {
	dir := folder(t, map[string]string{"usr/lib/x-1.so": "lib", "usr/lib/x.so": "->x-1.so", "lib": "->usr/lib", "round": "->round"})
	tr := newTree()
	if err := tr.copyHost(filepath.Join(dir, "lib/x.so")); err != nil {
		t.Fatal(err)
	}
	got, at := listed(t, packed(t, tr)), strings.TrimPrefix(dir, "/")
	for name, want := range map[string]string{"/lib": "Lrwxrwxrwx usr/lib", "/usr/lib/x.so": "Lrwxrwxrwx x-1.so", "/usr/lib/x-1.so": "-rw-r--r-- lib"} {
		if got[at+name] != want {
			t.Errorf("%s is %q, want %q", name, got[at+name], want)
		}
	}
	if err := newTree().copyHost(filepath.Join(dir, "round")); err == nil {
		t.Error("a link to itself was followed to its end")
	}
}

func TestRootKeepsOwnersAndHardLinks(t *testing.T) {
	dir := folder(t, map[string]string{"usr/bin/perl": "perl", "etc/alternatives/awk": "->/usr/bin/mawk", "var/cache/apt/x": "x", "usr/share/doc/a/changelog": "x",
		"usr/share/doc/a/copyright": "free", "etc/machine-id": "1", "tmp/x": "x"})
	if err := os.Link(filepath.Join(dir, "usr/bin/perl"), filepath.Join(dir, "usr/bin/perl5")); err != nil {
		t.Skip(err)
	}
	if err := os.Chmod(filepath.Join(dir, "usr/bin/perl"), 0o755|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	tr := newTree()
	if err := tr.copyRoot(dir); err != nil {
		t.Fatal(err)
	}
	got := listed(t, packed(t, tr))
	want := map[string]string{"usr/bin/perl": "-rwxr-xr-x perl", "usr/bin/perl5": "-rwxr-xr-x usr/bin/perl", "etc/alternatives/awk": "Lrwxrwxrwx /usr/bin/mawk",
		"usr/share/doc/a/copyright": "-rw-r--r-- free"}
	for name, is := range want {
		if got[name] != is {
			t.Errorf("%s is %q, want %q", name, got[name], is)
		}
	}
	for _, name := range []string{"var/cache/apt/", "usr/share/doc/a/changelog", "etc/machine-id", "tmp/x"} {
		if is, ok := got[name]; ok {
			t.Errorf("%s is there: %s", name, is)
		}
	}
}

func TestFileThatShrinks(t *testing.T) {
	dir := folder(t, map[string]string{"a": "long enough"})
	tr := newTree()
	if err := tr.copyTree("/x", dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "a"), 3); err != nil {
		t.Fatal(err)
	}
	if err := (layer{tree: tr}).writeTo(t.Context(), io.Discard, nil); err == nil {
		t.Error("half a file was written as a whole one")
	}
}

func TestUsers(t *testing.T) {
	for _, passwd := range []string{"", "root:x:0:0::/root:/bin/sh", "root:x:0:0::/root:/bin/sh\n", "a:x:10001:1000::/:/bin/sh\n"} {
		got := addUser(passwd)
		if !strings.HasPrefix(got, passwd) || !strings.HasSuffix(got, "\nagent:x:1000:1000:agent:"+sandbox.Home+":/bin/sh\n") && passwd != "" {
			t.Errorf("%q becomes %q", passwd, got)
		}
	}
	has := "node:x:1000:1000::/home/node:/bin/bash\n"
	if got := addUser(has); got != has {
		t.Errorf("a second user has the number: %q", got)
	}
	if got := addGroup("root:x:0:"); got != "root:x:0:\nagent:x:1000:\n" {
		t.Errorf("groups are %q", got)
	}
}
