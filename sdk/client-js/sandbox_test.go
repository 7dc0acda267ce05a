package clientjs

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
	"github.com/skep-dev/skep/sandbox/keeper"
	"github.com/skep-dev/skep/store"
)

// boxes makes the sandboxes of a server.
type boxes func(*store.Store) *keeper.Keeper

// dockerBoxes makes them in Docker, and deletes what is left of them when the test ends. They have no way out.
func dockerBoxes(t *testing.T) boxes {
	from, err := docker.New(&docker.Options{Host: dockertest.Host(t)})
	if err != nil {
		t.Fatal(err)
	}
	program := dockertest.Static(t, "github.com/skep-dev/skep/cmd/skep-driver")
	dir, err := os.MkdirTemp("", "skep") // a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	owner := "skep-js-" + strings.ToLower(rand.Text()[:8])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		list, err := from.List(ctx, owner)
		for _, o := range list {
			err = errors.Join(err, from.Delete(ctx, o.Handle))
		}
		if err := errors.Join(err, from.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return func(st *store.Store) *keeper.Keeper {
		k, err := keeper.New(&keeper.Options{
			Providers: []sandbox.Provider{from}, Records: st, Dir: dir, Driver: program, Owner: owner,
			Events: func(context.Context, agent.Sandbox, int64, []driver.Event) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}

// runtimeBoxes is a keeper as the runtime's Boxes.
type runtimeBoxes struct{ k *keeper.Keeper }

func (b runtimeBoxes) Open(ctx context.Context, w runtime.BoxWant) (runtime.Box, error) {
	return b.k.Open(ctx, keeper.Want{App: w.App, Agent: w.Agent, For: w.For, Session: w.Session, Run: w.Run, Keep: w.Keep, Environment: w.Environment, Trace: w.Trace})
}

func (b runtimeBoxes) Get(ctx context.Context, app agent.App, id agent.SandboxID) (runtime.Box, error) {
	return b.k.Get(ctx, app, id)
}

func (b runtimeBoxes) Release(ctx context.Context, app agent.App, whose string) error {
	return b.k.Release(ctx, app, whose)
}

// TestSandbox has the client use real sandboxes.
func TestSandbox(t *testing.T) {
	b := dockerBoxes(t)
	tools := imagetest.Tools(t)
	s := startServer(t, server{boxes: b})
	prepare(t, s.addr, s.token)
	s.node("testdata/sandbox.test.mjs", "SKEP_IMAGE="+tools)
}
