//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

const wasmtimeName = "wasmtime 44, fuel"

// wasmtime is a child process that runs modules in wasmtime and tells what CPU time they took.
type wasmtime struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startWasmtime builds and starts the child. Where there is no C compiler, or the library cannot be had, it returns nil.
func (b *bench) startWasmtime(ctx context.Context) (*wasmtime, error) {
	program := filepath.Join(b.dir, "wasmtime")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = filepath.Join(b.root, "internal/bench/peer/wasmtime")
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "GOWORK=off")
	if _, err := build.Output(); err != nil {
		fmt.Fprintf(b.progress, "wasmtime is not here: %v\n", explain(err))
		return nil, nil
	}
	w := &wasmtime{cmd: exec.CommandContext(ctx, program)}
	w.cmd.Stderr = b.progress
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	w.out = json.NewDecoder(out)
	return w, w.cmd.Start()
}

func (w *wasmtime) stop() {
	if w != nil {
		_ = w.in.Close()
		_ = w.cmd.Wait()
	}
}

func (w *wasmtime) ask(q map[string]any) (float64, error) {
	if err := json.NewEncoder(w.in).Encode(q); err != nil {
		return 0, fmt.Errorf("ask wasmtime: %w", err)
	}
	var a struct {
		Seconds float64 `json:"seconds"`
		Error   string  `json:"error"`
	}
	if err := w.out.Decode(&a); err != nil {
		return 0, fmt.Errorf("read wasmtime's answer: %w", err)
	}
	if a.Error != "" {
		return 0, errors.New("wasmtime: " + a.Error)
	}
	return a.Seconds, nil
}

// wasmtimeFigure runs a task in wasmtime with and without fuel, in turns. It is a guide: its compiler takes longer and makes
// faster code than wazero's, which no metering of ours can make up for.
func (b *bench) wasmtimeFigure(w *wasmtime, t task, ours float64) (Figure, error) {
	file := filepath.Join(b.dir, "task.wasm")
	if err := os.WriteFile(file, t.subject.wasm, 0o600); err != nil {
		return Figure{}, err
	}
	for _, fuel := range []bool{true, false} {
		if _, err := w.ask(map[string]any{"name": fmt.Sprint(fuel), "file": file, "fuel": fuel}); err != nil {
			return Figure{}, err
		}
	}
	var took [2][]float64
	for range b.count(12, 3) {
		for i, fuel := range []bool{true, false} {
			s, err := w.ask(map[string]any{"name": fmt.Sprint(fuel), "call": t.function, "arg": t.arg})
			if err != nil {
				return Figure{}, err
			}
			took[i] = append(took[i], s)
		}
	}
	metered, plain := minimum(took[0]), minimum(took[1])
	f := compare("P8", "metered, "+t.name, Seconds, []float64{ours}, []float64{metered}, wasmtimeName, Target{})
	f.Note = fmt.Sprintf("wasmtime without fuel %s: its own metering costs %s", Seconds.format(plain), Times.format(metered/plain))
	return f, nil
}
