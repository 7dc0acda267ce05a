//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const nodeName = "node:vm"

// nodeServer starts Node's vm module behind a loopback address. Without Node it returns nil.
func (b *bench) nodeServer(ctx context.Context) (*server, error) {
	if b.node != nil || b.noNode {
		return b.node, nil
	}
	program, err := exec.LookPath("node")
	if err != nil {
		b.noNode = true
		fmt.Fprintf(b.progress, "%s is not here: %v\n", nodeName, err)
		return nil, nil
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(b.dir, "node.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, filepath.Join(b.root, "internal/bench/peer/node.mjs"), addr)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.node = &server{cmd: cmd, addr: addr}
	if err := awaitAnswer(ctx, addr); err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("node did not start: %w: %s", err, said)
	}
	return b.node, nil
}

// nodeFigures are guides: a vm context bounds neither memory nor what its code can reach.
func nodeFigures(id, name, peer string, ours, node *side) []Figure {
	if node.server == nil {
		return nil
	}
	p50 := compare(id, name+", p50", Seconds, ours.p50, node.p50, peer, Target{})
	p50.Note = node.costs(peer)
	return []Figure{p50, compare(id, name+", rate with 8 callers", PerSecond, ours.rate, node.rate, peer, Target{})}
}
