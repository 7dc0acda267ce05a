package image_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/skep-dev/skep/sandbox/image"
)

// fakeCLI returns a cache in which npm has already put a version 0.0.1 of claude: a program of this machine.
func fakeCLI(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("no CLI is made for this processor")
	}
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip(err)
	}
	cache := t.TempDir()
	dir, folder := image.CacheEntry(t, cache, "claude@0.0.1")
	program, err := os.ReadFile(git)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := json.Marshal(map[string]any{"packages": map[string]any{"node_modules/" + folder: map[string]string{"version": "0.0.1", "integrity": "sha512-x"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"package-lock.json": lock, "node_modules/" + folder + "/claude": program} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return cache
}

// serve is a daemon without room: it knows its version and no image, reads a part of what it is to import, and says so.
func serve(t *testing.T, l net.Listener) {
	t.Helper()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		switch {
		case strings.HasSuffix(q.URL.Path, "/_ping"):
		case strings.HasSuffix(q.URL.Path, "/version"):
			_ = json.NewEncoder(w).Encode(map[string]string{"Os": "linux", "Arch": runtime.GOARCH, "ApiVersion": "1.41", "MinAPIVersion": "1.12"})
		case strings.HasSuffix(q.URL.Path, "/images/create"):
			_, _ = io.CopyN(io.Discard, q.Body, 100_000)
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"message":"write /var/lib/docker/tmp/x: no space left on device"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"message":"No such image"}`)
		}
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
}
