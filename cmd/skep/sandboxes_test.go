package main

import (
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// TestCheckDriver looks at programs that may be the driver and at some that may not.
func TestCheckDriver(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("main.go", "package main\n\nfunc main() {}\n", 0o644)
	build := func(name string, env ...string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		cmd := exec.Command("go", "build", "-o", file, main)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := os.Chmod(file, 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	static := build("static", "CGO_ENABLED=0", "GOOS=linux")
	private := build("private", "CGO_ENABLED=0", "GOOS=linux")
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	bytes, err := os.ReadFile(static)
	if err != nil {
		t.Fatal(err)
	}
	bytes[18], bytes[19] = 0xff, 0xfe // e_machine of elf(5)
	for file, want := range map[string]string{
		static:                                "",
		private:                               "may not be read and run by everybody",
		filepath.Join(dir, "none"):            "is not there",
		dir:                                   "may not be read and run",
		write("script", "#!/bin/sh\n", 0o755): "is no program for Linux",
		write("windows.exe", "MZ\x90\x00", 0o755): "is no program for Linux",
	} {
		wantDriver(t, file, want)
	}
	if goruntime.GOOS == "linux" {
		wantDriver(t, write("other", string(bytes), 0o755), "another kind of processor")
	}
	if sh, err := filepath.EvalSymlinks("/bin/sh"); err == nil && goruntime.GOOS == "linux" { // busybox's may be static
		if err := checkDriver(sh); err != nil {
			wantDriver(t, sh, "is not static")
		}
	}
}

func wantDriver(t *testing.T, file, want string) {
	t.Helper()
	got, err := driverFile(file)
	switch {
	case want == "" && (err != nil || got != file):
		t.Errorf("%s: %q, %v", file, got, err)
	case want != "" && (agent.KindOf(err) != agent.Invalid || !strings.Contains(agent.AsError(err).Msg, want) || agent.AsError(err).Hint == ""):
		t.Errorf("%s: %v, want %q", file, err, want)
	}
}

// TestSockets finds a folder whose path is short enough for sockets.
func TestSockets(t *testing.T) {
	long := "/srv/" + strings.Repeat("d", 80)
	t.Setenv("XDG_RUNTIME_DIR", "")
	for _, tt := range []struct{ dir, data, want string }{
		{"", "/srv/skep", "/srv/skep/sandboxes"},
		{"/run/x", long, "/run/x"},
		{"", long[:maxSockets-len("/sandboxes")], long[:maxSockets-len("/sandboxes")] + "/sandboxes"},
	} {
		if got, err := (&sandboxOptions{dir: tt.dir}).sockets(tt.data); err != nil || got != tt.want {
			t.Errorf("%q %q: %q, %v", tt.dir, tt.data, got, err)
		}
	}
	one, err := new(sandboxOptions).sockets(long)
	if os.Geteuid() != 0 {
		if agent.KindOf(err) != agent.Invalid || !strings.Contains(agent.AsError(err).Hint, "--sandbox-dir") {
			t.Errorf("%q, %v", one, err)
		}
		return
	}
	two, _ := new(sandboxOptions).sockets(long + "/2")
	if err != nil || one == two || !strings.HasPrefix(one, "/run/skep-") || len(one) > maxSockets {
		t.Errorf("%q, %q, %v", one, two, err)
	}
}

// TestProvider takes the names of providers, and no others.
func TestProvider(t *testing.T) {
	t.Setenv("DOCKER_HOST", "")
	for kind, want := range map[string]string{"": "", sandboxNone: "", "docker": "docker", "podman": "podman"} {
		p, err := (&sandboxOptions{kind: kind, host: "unix:///nowhere.sock"}).provider()
		if got := ""; err == nil && p != nil {
			if got = p.Name(); got != want {
				t.Errorf("%q is %q", kind, got)
			}
			_ = p.Close()
		} else if err != nil || want != "" {
			t.Errorf("%q: %v, %v", kind, p, err)
		}
	}
	if _, err := (&sandboxOptions{kind: "lxc"}).provider(); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), "kubernetes") {
		t.Errorf("lxc: %v", err)
	}
}
