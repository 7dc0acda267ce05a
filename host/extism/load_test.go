package extism_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

const counter = 64 // address of a byte in the modules below

// count adds 1 to the counter.
func count() []byte {
	return w.Code(w.I32Const(counter), w.I32Const(counter), 0x2d, 0, 0, w.I32Const(1), 0x6a, 0x3a, 0, 0)
}

// beginner has a function f, and _start, that return the counter. Its initialisers, of the given names, count.
func beginner(extra []byte, initialisers ...string) w.Module {
	const returnsI32, takesTwo = 1, 2
	read := w.Code(w.I32Const(counter), 0x2d, 0, 0)
	m := w.Module{
		Types: []w.Type{
			{}, {Results: []byte{w.I32}}, {Params: []byte{w.I32, w.I32}}, {Params: []byte{w.I64}, Results: []byte{w.I64}},
		},
		Imports: []w.Import{{Module: "extism:host/env", Name: "alloc", Type: 3}},
		Memory:  w.Size(1, 1),
		Table:   w.Size(4, 4),
		Funcs: []w.Func{
			{Type: returnsI32, Export: "f", Body: read},
			{Type: returnsI32, Export: "_start", Body: read},
		},
	}
	for _, name := range initialisers {
		f := w.Func{Export: name, Body: w.Code(count(), extra)}
		if name == "hs_init" {
			f.Type = takesTwo
		}
		m.Funcs = append(m.Funcs, f)
	}
	return m
}

// TestInitialisers looks at which initialisers have run, once, when a function runs: a status of n says that n have.
func TestInitialisers(t *testing.T) {
	askHost := w.Code(w.I64Const(8), 0x10, 0, drop)
	changeTable := w.Code(w.I32Const(0), 0xd0, w.FuncRef, 0x26, 0)
	for _, tc := range []struct {
		name         string
		extra        []byte
		initialisers []string
		want         string // of f; _start initialises for itself
	}{
		{"none", nil, nil, ""},
		{"reactor", nil, []string{"_initialize"}, "status 1"},
		{"constructors", nil, []string{"__wasm_call_ctors"}, "status 1"},
		{"reactor before constructors", nil, []string{"__wasm_call_ctors", "_initialize"}, "status 1"},
		{"Haskell", nil, []string{"hs_init", "_initialize"}, "status 2"},
		{"asks its host", askHost, []string{"_initialize"}, "status 1"},
		{"cannot be cloned", changeTable, []string{"_initialize"}, "status 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := load(t, beginner(tc.extra, tc.initialisers...).Bytes())
			if d := cmp.Diff([]string{"f"}, a.Exports()); d != "" {
				t.Error(d)
			}
			for range 3 {
				_, _, err := a.Call(t.Context(), extism.Call{Function: "f"})
				if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("f: %v, want %q", err, tc.want)
				}
				if _, _, err := a.Call(t.Context(), extism.Call{Function: "_start"}); err != nil {
					t.Errorf("_start: %v", err)
				}
			}
		})
	}
}

func TestLoadFails(t *testing.T) {
	asksAtStart := beginner(w.Code(w.I64Const(8), 0x10, 0, drop), "g")
	asksAtStart.Start = 3 // g, after the import, f and _start
	for _, tc := range []struct {
		name string
		wasm []byte
		env  cell.Env
		kind agent.Kind
		says string
	}{
		{"not wasm", []byte("#!/bin/sh"), cell.Env{}, agent.Invalid, "magic number"},
		{"the start function asks", asksAtStart.Bytes(), cell.Env{}, agent.Invalid, "the module's start function calls its host"},
		{"an initialiser traps", beginner(w.Code(unreachable), "_initialize").Bytes(), cell.Env{}, agent.Failed, "unreachable"},
		{"an initialiser does not end", beginner(forever(), "_initialize").Bytes(), cell.Env{Limits: agent.Limits{CPU: 1}}, agent.Exhausted, "CPU time"},
	} {
		_, err := extism.Load(t.Context(), newEngine(t), tc.wasm, &extism.LoadOptions{Env: tc.env})
		if agent.KindOf(err) != tc.kind || err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v that says %q", tc.name, err, tc.kind, tc.says)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	a, err := extism.Load(t.Context(), newEngine(t), fixture(t, "noop.wasm"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Size() == 0 {
		t.Error("a module with a memory has size 0")
	}
	for range 2 {
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
