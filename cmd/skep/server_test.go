package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// liveServer is a server in this process, and a client of it. Its agents may reach loopback, where they are granted to.
type liveServer struct {
	*client.Client
	url, token, dir string
	stop            func() // and wait
}

// startServer starts a server in a directory of its own, with all it has to say going to log. change is of its options; nil changes nothing.
func startServer(t *testing.T, log io.Writer, change func(*serveOptions)) *liveServer {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, done := make(chan serverInfo, 1), make(chan error, 1)
	o := serveOptions{
		listen: "127.0.0.1:0", dir: filepath.Join(dir, "data"), cells: "map", cache: os.Getenv("SKEP_TEST_CACHE"),
		log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	o.vault.key, o.egress.allow = "file:"+filepath.Join(dir, "key"), []string{"127.0.0.1"}
	if change != nil {
		change(&o)
	}
	go func() { done <- serve(ctx, o, func(i serverInfo) { ready <- i }) }()
	select {
	case info := <-ready:
		b, err := os.ReadFile(filepath.Join(o.dir, tokenFile))
		if err != nil {
			t.Fatal(err)
		}
		token := strings.TrimSpace(string(b))
		return &liveServer{client.New(info.URL, token, nil), info.URL, token, o.dir, sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})}
	case err := <-done:
		t.Fatal(err)
		return nil
	}
}

// safeBuffer is a buffer for many writers.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) Bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.b.Bytes())
}

// secretAt is a value to set, bound to one place.
func secretAt(t *testing.T, kind agent.SecretKind, value any, binding string) client.NewSecret {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var b agent.Binding
	if err := b.UnmarshalText([]byte(binding)); err != nil {
		t.Fatal(err)
	}
	return client.NewSecret{Value: text, Kind: kind, Bindings: &[]agent.Binding{b}}
}
