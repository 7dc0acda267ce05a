package clientjs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/crashtest"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/engine"
)

func TestMain(m *testing.M) {
	crashtest.Main(m, map[string]crashtest.Work{"serve": serve})
}

// serve is a server in a process of its own. It prints a line when it is there, and another one when it wants to be killed.
func serve(dir, arg string) error {
	addr, control, _ := strings.Cut(arg, " ")
	ctx := context.Background()
	db, err := engine.Open(dir, engine.Badger, nil)
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		return err
	}
	if _, err := api.EnsureOwnerToken(ctx, st, filepath.Join(dir, "owner.token")); err != nil {
		return err
	}
	var rt *runtime.Runtime
	h, err := host.New(ctx, &host.Options{
		CacheDir: filepath.Join(dir, "cache"), Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) { return rt.LoadSource(ctx, d) },
	})
	if err != nil {
		return err
	}
	rt = runtime.New(st, h, nil)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ended := make(chan error, 3)
	go func() { ended <- rt.Run(ctx) }()
	go func() { ended <- api.New(rt, st, nil).Run(ctx, ln) }()
	go func() {
		ended <- http.ListenAndServe(control, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			fmt.Println("kill me")
			select {}
		}))
	}()
	fmt.Println("ready")
	return <-ended
}

func freeAddr(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// The same as TestClient, where each restart of the server is a kill: whatever was acknowledged is there, and events come once.
func TestClientKilled(t *testing.T) {
	needsModules(t, "ws")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	dir, addr, control := t.TempDir(), freeAddr(t), freeAddr(t)
	kill := func() {
		if res, err := http.Get("http://" + control); err == nil { // it never answers
			res.Body.Close()
		}
	}
	ready := make(chan struct{}, 16)
	mux := http.NewServeMux()
	mux.HandleFunc("/restart", func(w http.ResponseWriter, _ *http.Request) {
		kill()
		<-ready
	})
	parent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(parent) }()
	defer srv.Close()

	done := make(chan struct{})
	var out []byte
	var failed error
	var test sync.WaitGroup
	test.Go(func() {
		defer kill() // the last server
		defer close(done)
		<-ready
		b, err := os.ReadFile(filepath.Join(dir, "owner.token"))
		if failed = err; err != nil {
			return
		}
		token := strings.TrimSpace(string(b))
		prepare(t, addr, token)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=spec", "testdata/client.test.mjs")
		cmd.Env = append(os.Environ(), "SKEP_URL=http://"+addr, "SKEP_TOKEN="+token, "SKEP_CONTROL=http://"+parent.Addr().String())
		out, failed = cmd.CombinedOutput()
	})
	lives := 0
	for over := false; !over; {
		crashtest.Kill(t, "serve", dir, addr+" "+control, 2, func(line string) {
			if line == "ready" {
				ready <- struct{}{}
			}
		})
		lives++
		select {
		case <-done:
			over = true
		default:
		}
	}
	test.Wait()
	t.Logf("%d lives\n%s", lives, out)
	if failed != nil || lives < 4 {
		t.Error(errors.Join(failed, fmt.Errorf("%d lives", lives)))
	}
}
