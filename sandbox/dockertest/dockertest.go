// Package dockertest finds, for tests, the engines that run containers on this machine, and makes small images for them. A test that needs an engine skips
// when there is none, with a word; with SKEP_NEED_DOCKER set it fails, so that a machine that tests everything does not test less in silence.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// Host returns the address of Docker Engine: DOCKER_HOST, or that of its socket.
func Host(t testing.TB) string {
	t.Helper()
	c, err := client.New(client.FromEnv)
	if err != nil {
		missing(t, "Docker", err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := c.Ping(ctx, client.PingOptions{}); err != nil {
		missing(t, "Docker", err)
	}
	return c.DaemonHost()
}

// Podman starts Podman's service for the time of a test and returns its address. It skips when podman is not installed; SKEP_NEED_PODMAN forbids that.
func Podman(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("podman")
	if err != nil {
		if os.Getenv("SKEP_NEED_PODMAN") != "" {
			t.Fatalf("SKEP_NEED_PODMAN is set: %v", err)
		}
		t.Skipf("needs Podman: %v", err)
	}
	dir, err := os.MkdirTemp("", "skep-podman") // a short path, for the sake of the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	host := "unix://" + filepath.Join(dir, "s")
	said := &bytes.Buffer{}
	cmd := exec.Command(program, "system", "service", "--time=0", host)
	cmd.Dir = dir // where its conmon leaves an empty file "oom" for each box that ran out of memory
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	c := Client(t, host)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		_, err := c.Ping(ctx, client.PingOptions{})
		if err == nil {
			return host
		}
		select {
		case <-ctx.Done():
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatalf("podman system service does not answer: %v\n%s", err, said)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func missing(t testing.TB, what string, err error) {
	t.Helper()
	if os.Getenv("SKEP_NEED_DOCKER") != "" {
		t.Fatalf("SKEP_NEED_DOCKER is set, and %s is not there: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

// Client returns a client of the engine at host until the test ends.
func Client(t testing.TB, host string) *client.Client {
	t.Helper()
	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Image makes an image of no program at all, of a few bytes, at the engine at host, and removes it when the test ends. What a box runs in it is mounted.
// Changes are lines of a Dockerfile, such as VOLUME /data.
func Image(t testing.TB, host string, changes ...string) string {
	t.Helper()
	c := Client(t, host)
	name := "skep-test-" + strings.ToLower(rand.Text()[:12]) + ":latest"
	made, err := c.ImageImport(t.Context(), client.ImageImportSource{Source: empty(t), SourceName: "-"}, name, client.ImageImportOptions{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	if said, err := io.ReadAll(made); err != nil || bytes.Contains(said, []byte(`"error"`)) {
		t.Fatalf("import: %s (%v)", said, err)
	}
	RemoveImage(t, host, name)
	return name
}

// RemoveImage removes an image when the test ends, and fails it when that cannot be.
func RemoveImage(t testing.TB, host, name string) {
	c := Client(t, host)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := c.ImageRemove(ctx, name, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Errorf("remove the image %s: %v", name, err)
		}
	})
}

// empty is a tar archive with folders that an image is wont to have, and one file.
func empty(t testing.TB) io.Reader {
	t.Helper()
	b := &bytes.Buffer{}
	w := tar.NewWriter(b)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "data/", Mode: 0o777},
		{Typeflag: tar.TypeReg, Name: "etc/release", Mode: 0o644},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

// Static builds the main package of that import path as a static program for Linux, which runs in an image without a C library, and returns its file.
func Static(t testing.TB, pkg string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the engine may be another user's
		t.Fatal(err)
	}
	file := filepath.Join(dir, "program")
	cmd := exec.Command("go", "build", "-o", file, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return file
}
