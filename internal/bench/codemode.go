//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/plugins"
)

const codemodeName = "workerd + codemode"

// codemodePeer starts workerd with @cloudflare/codemode. When it cannot be had here it returns nil.
func (b *bench) codemodePeer(ctx context.Context) (*server, error) {
	program := b.peerProgram(ctx)
	if program == "" {
		return nil, nil
	}
	from, dir := filepath.Join(b.root, "internal/bench/peer"), filepath.Join(b.dir, "codemode")
	built := api.Build(api.BuildOptions{
		EntryPoints: []string{filepath.Join(from, "codemode.mjs")}, Outfile: filepath.Join(dir, "bundle.mjs"),
		Bundle: true, Write: true, Format: api.FormatESModule, Target: api.ES2022, External: []string{"cloudflare:*", "node:*"},
	})
	if len(built.Errors) > 0 {
		return nil, fmt.Errorf("bundle the peer: %s", built.Errors[0].Text)
	}
	config, err := os.ReadFile(filepath.Join(from, "codemode.capnp"))
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(dir, "codemode.capnp")
	if err := os.WriteFile(copied, config, 0o600); err != nil {
		return nil, err
	}
	return b.startPeer(ctx, program, copied, "codemode.log")
}

// mathAgent has the tool of figure P12.
var mathAgent = map[string][]byte{
	"skep.json": []byte(`{"name": "math", "version": "1.0.0", "main": "main.ts", "tools": {"add": {"description": "Add two numbers.", "effect": "read",
		"input": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}, "output": {"type": "number"}}}}`),
	"main.ts": []byte(`export const add = ({ a, b }: { a: number; b: number }) => a + b;`),
}

// adding is a script that calls a tool so many times, each with what came of the one before.
func adding(calls int, call string) string {
	return fmt.Sprintf(`async () => { /* %%d */ let s = 0; for (let i = 0; i < %d; i++) { s = %s; } return { s, of: "ok:%%[1]d" }; }`, calls, call)
}

// codeMode is figure P12: scripts that were never seen before, with one call of a tool and with 20.
func codeMode(ctx context.Context, b *bench) ([]Figure, error) {
	skep, err := b.toolServer(ctx)
	if err != nil {
		return nil, err
	}
	defer skep.stop()
	peer, err := b.codemodePeer(ctx)
	if err != nil {
		return nil, err
	}
	defer peer.stop()
	var fs []Figure
	serial := 0
	script := func(text string) func() ask {
		return func() ask {
			serial++
			body, err := json.Marshal(map[string]any{"code": fmt.Sprintf(text, serial), "tools": []string{"*"}})
			if err != nil {
				panic(err) // strings always marshal
			}
			return ask{"/v1/code", "application/json", body, fmt.Sprintf("ok:%d", serial)}
		}
	}
	for _, p := range []struct {
		name   string
		calls  int
		target Target
	}{{"no call", 0, Target{}}, {"1 call", 1, Target{Bound: 1. / 3}}, {"20 calls", 20, Target{Bound: 1. / 3}}} {
		theirText := adding(p.calls, "await tools.add({ a: s, b: i })")
		theirs := &side{server: peer, next: func() ask {
			serial++
			return ask{"/run", "text/javascript", fmt.Appendf(nil, theirText, serial), fmt.Sprintf("ok:%d", serial)}
		}}
		builtin := &side{server: skep, next: script(adding(p.calls, "s + (await tools.files.list({})).files.length"))}
		inCell := &side{server: skep, next: script(adding(p.calls, "await tools.math.add({ a: s, b: i })"))}
		plan := plan{rounds: b.count(6, 2), sequential: b.count(25, 12), callers: 8, many: b.count(40, 24)}
		sides := []*side{builtin, theirs}
		if p.calls > 0 {
			sides = append(sides, inCell)
		}
		if err := duel(ctx, plan, sides...); err != nil {
			return nil, err
		}
		fs = append(fs, codeFigures("code mode, "+p.name, builtin, theirs, p.target)...)
		if p.calls > 0 {
			fs = append(fs, codeFigures("code mode, "+p.name+", tool in a cell of its own", inCell, theirs, Target{})...)
		}
	}
	return fs, nil
}

func codeFigures(name string, ours, theirs *side, latency Target) []Figure {
	fs := duelFigures("P12", name, codemodeName, ours, theirs, latency, Target{})
	return []Figure{fs[0], fs[2]}
}

// toolServer starts skep serve with the tools that scripts of the bench call. The caller stops it.
func (b *bench) toolServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp(b.dir, "tools") // more than one part has such a server
	if err != nil {
		return nil, err
	}
	s, err := b.startSkep(ctx, dir, "--isolation", "inline")
	if err != nil {
		return nil, err
	}
	if err := s.addMath(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *server) addMath(ctx context.Context) error {
	pack, err := plugins.Pack(mathAgent)
	if err != nil {
		return err
	}
	c := client.New("http://"+s.addr, s.token, nil)
	if _, err := c.PutPlugin(ctx, client.Upload{Name: "math", Version: "1.0.0", Filename: "math.zip", Body: pack}, nil); err != nil {
		return fmt.Errorf("store the tool's code: %w", err)
	}
	if _, err := c.CreateAgent(ctx, client.NewAgent{Name: "math", Plugin: "math"}); err != nil {
		return fmt.Errorf("make the tool's agent: %w", err)
	}
	if _, err := c.AddToolServer(ctx, client.NewToolServer{Name: "math", Kind: agent.AgentTools, Agent: "math"}); err != nil {
		return fmt.Errorf("add the tool: %w", err)
	}
	return nil
}
