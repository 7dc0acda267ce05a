package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// real resolves paths, so that two names of one file are the same.
func real(t *testing.T, paths []string) []string {
	t.Helper()
	var files []string
	for _, path := range paths {
		file, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

var lddLine = regexp.MustCompile(`(?m)^\s+(?:\S+ => )?(/\S+) \(0x`)

// ldd asks the loader itself, which runs the program's own.
func ldd(t *testing.T, program string) []string {
	t.Helper()
	tool, err := exec.LookPath("ldd")
	if err != nil {
		t.Skip("needs ldd")
	}
	out, err := exec.Command(tool, program).Output()
	if err != nil {
		t.Skipf("ldd %s: %v", program, err)
	}
	var paths []string
	for _, m := range lddLine.FindAllStringSubmatch(string(out), -1) {
		paths = append(paths, m[1])
	}
	return real(t, paths)
}

func TestClosureIsWhatTheLoaderSays(t *testing.T) {
	l := newLinker("")
	compared := 0
	for _, name := range []string{"ls", "bash", "git", "tar", "ps", "find", "node", "curl", "ssh", "rg", "clang", "python3", "/usr/lib/git-core/git-remote-http"} {
		file, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if word, err := shebang(file); err != nil || word != "" {
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			want := ldd(t, file)
			got, err := l.closure(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := real(t, got); !slices.Equal(got, want) {
				t.Errorf("%s needs\n%s\nand ldd says\n%s", file, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			compared++
		})
	}
	if compared < 5 && !t.Failed() {
		t.Skipf("only %d programs could be compared", compared)
	}
}

// TestClosureFollowsRunPaths has libraries that are found by $ORIGIN alone, the second by the first.
func TestClosureFollowsRunPaths(t *testing.T) {
	cc := compiler(t)
	for _, tags := range []string{"--enable-new-dtags", "--disable-new-dtags"} {
		t.Run(tags, func(t *testing.T) {
			dir := t.TempDir()
			lib := filepath.Join(dir, "lib")
			if err := os.Mkdir(lib, 0o755); err != nil {
				t.Fatal(err)
			}
			source := func(name, text string) string {
				file := filepath.Join(dir, name)
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				return file
			}
			compile := func(args ...string) {
				if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
					t.Skipf("%s: %s", cc, out)
				}
			}
			path := "-Wl," + tags + ",-rpath,$ORIGIN"
			compile("-shared", "-fPIC", "-o", lib+"/libbee.so", source("bee.c", "int bee(void) { return 0; }"))
			compile("-shared", "-fPIC", "-o", lib+"/libhive.so", source("hive.c", "int bee(void); int hive(void) { return bee(); }"), "-L"+lib, "-lbee", path)
			compile("-o", dir+"/main", source("main.c", "int hive(void); int main(void) { return hive(); }"), "-L"+lib, "-lhive", path+"/lib", "-Wl,-rpath-link,"+lib)
			got, err := newLinker("").closure(dir + "/main")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := real(t, got), ldd(t, dir+"/main"); !slices.Equal(got, want) || !slices.Contains(got, real(t, []string{lib + "/libbee.so"})[0]) {
				t.Errorf("needs %q, and ldd says %q", got, want)
			}
		})
	}
}

func compiler(t *testing.T) string {
	for _, name := range []string{"cc", "clang", "gcc"} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	t.Skip("needs a C compiler")
	return ""
}

// altered copies a program and replaces some bytes of the copy.
func altered(t *testing.T, program string, change func([]byte)) string {
	t.Helper()
	file, err := exec.LookPath(program)
	if err != nil {
		t.Skip(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	change(b)
	name := filepath.Join(t.TempDir(), program)
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestMissingLibrary(t *testing.T) {
	var lib string
	file := altered(t, "git", func(b []byte) {
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Skip(err)
		}
		libs, err := f.ImportedLibraries()
		if err != nil || len(libs) == 0 {
			t.Skip("git is a static program here")
		}
		lib = "libQ" + libs[0][4:]
		copy(b[bytes.Index(b, append([]byte(libs[0]), 0)):], lib)
	})
	_, err := newLinker("").closure(file)
	if agent.KindOf(err) != agent.NotFound || !strings.Contains(err.Error(), file+" needs the library "+lib) {
		t.Errorf("a program that needs %s: %v", lib, err)
	}
	if err := hostBase(newTree(), []string{file}, nil, nil); agent.KindOf(err) != agent.NotFound {
		t.Errorf("an image with it: %v", err)
	}
}

func TestProgramOfAnotherProcessor(t *testing.T) {
	file := altered(t, "git", func(b []byte) { binary.LittleEndian.PutUint16(b[18:], uint16(elf.EM_RISCV)) })
	if _, err := newLinker("").closure(file); agent.KindOf(err) != agent.NotFound {
		t.Errorf("no library here is for it, but: %v", err)
	}
}

func TestProgramOfAnotherLibc(t *testing.T) {
	file := altered(t, "git", func(b []byte) {
		at := bytes.Index(b, []byte("/lib64/ld-"))
		if at < 0 {
			t.Skip("git has another loader here")
		}
		copy(b[at:], "/lib64/no-")
	})
	_, err := newLinker("").closure(file)
	if agent.KindOf(err) != agent.NotFound || !strings.Contains(err.Error(), "is loaded by /lib64/no-") {
		t.Error(err)
	}
}

func TestNoELF(t *testing.T) {
	for _, text := range []string{"", "#!/bin/sh\n", "\x7fELF", "\x7fELF\x02\x01\x01\x00 and no more of it"} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := newLinker("").closure(file); err != nil || len(got) != 0 {
			t.Errorf("%q needs %q (%v)", text, got, err)
		}
	}
	if _, err := newLinker("").closure("/nowhere/at/all"); agent.KindOf(err) != agent.NotFound {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestSearchPathOfAnotherRoot(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"etc/ld.so.conf":              "/opt/one # why\ninclude ld.so.conf.d/*.conf\n\n",
		"etc/ld.so.conf.d/a.conf":     "# nothing\n/opt/a:\nhwcap 1 nosegneg\n",
		"etc/ld.so.conf.d/b.conf":     "include /etc/ld.so.conf\n/opt/b\n", // a circle, which ends
		"etc/ld-musl-x86_64.path":     "/lib:/musl\n",
		"lib/x86_64-linux-gnu/libc.x": "",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := newLinker(root)
	for _, dir := range []string{"/opt/one", "/opt/a", "/opt/b", "/musl", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib"} {
		if !slices.Contains(l.dirs, dir) {
			t.Errorf("%s is not in %q", dir, l.dirs)
		}
	}
	if at := slices.Index(l.dirs, "/opt/one"); at != 0 {
		t.Errorf("what the file names first is at %d", at)
	}
}
