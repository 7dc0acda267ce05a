//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/internal/bench/bare"
)

// bench is what the parts of one run share. Its servers and guests are made when first asked for.
type bench struct {
	quick    bool
	root     string // of the module
	dir      string // temporary
	progress io.Writer

	skep   *server
	apart  *server // with worker processes
	peer   *server
	noPeer string // why there is none
	node   *server
	noNode bool
	stores map[int]string // data directories, by the number of agents in them
	built  map[string][]byte
	bare   *bare.Engine
}

func newBench(ctx context.Context, quick bool, progress io.Writer) (*bench, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/skep-dev/skep").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module's directory: %w", explain(err))
	}
	dir, err := os.MkdirTemp("", "skep-bench-")
	if err != nil {
		return nil, err
	}
	return &bench{quick: quick, root: strings.TrimSpace(string(root)), dir: dir, progress: progress, built: map[string][]byte{}, stores: map[int]string{}}, nil
}

func (b *bench) close() {
	b.skep.stop()
	b.apart.stop()
	b.peer.stop()
	b.node.stop()
	if b.bare != nil {
		_ = b.bare.Close(context.Background())
	}
	_ = os.RemoveAll(b.dir)
}

// count is how often something is done: full, or in a quick run.
func (b *bench) count(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// cache holds compiled code of this run, for our engine and for the bare one.
func (b *bench) cache() string { return filepath.Join(b.dir, "cache") }

// guests are the modules of figures P3 and P4. The one in C touches so many pages in each call.
func (b *bench) guests(ctx context.Context, pages uint64) ([]subject, error) {
	small, err := b.goGuest(ctx, "small")
	if err != nil {
		return nil, err
	}
	large, err := b.goGuest(ctx, "large")
	return []subject{inC(pages), small, large}, err
}

// goGuest builds a guest that is written in Go.
func (b *bench) goGuest(ctx context.Context, name string) (subject, error) {
	if b.built[name] == nil {
		file := filepath.Join(b.dir, name+".wasm")
		cmd := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./internal/bench/testdata/"+name)
		cmd.Dir = b.root
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		if _, err := cmd.Output(); err != nil {
			return subject{}, fmt.Errorf("build the Go guest: %w", explain(err))
		}
		wasm, err := os.ReadFile(file)
		if err != nil {
			return subject{}, err
		}
		b.built[name] = wasm
	}
	wasm := b.built[name]
	return inGo(fmt.Sprintf("Go guest of %.1f MB", float64(len(wasm))/1e6), wasm), nil
}

// bareEngine is wazero alone.
func (b *bench) bareEngine(ctx context.Context) (_ *bare.Engine, err error) {
	if b.bare != nil {
		return b.bare, nil
	}
	if b.bare, err = bare.New(ctx, b.cache()); err != nil {
		return nil, err
	}
	return b.bare, bareScriptImports(ctx, b.bare)
}

// explain adds what a program said to its failure.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
