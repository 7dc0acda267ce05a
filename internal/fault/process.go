package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// process is a child that does a task.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
	acks   chan ack // closed when the child has closed its standard output
}

func start(ctx context.Context, t task) (*process, error) {
	spec, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self), acks: make(chan ack, 1)}
	p.cmd.Env = append(os.Environ(), taskEnv+"="+string(spec))
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.acks)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			var a ack
			if err != nil || json.Unmarshal(line, &a) != nil {
				return // a line that was cut short was not acknowledged
			}
			p.acks <- a
		}
	}()
	return p, nil
}

// errSilent is returned by collect when nothing came for long.
var errSilent = errors.New("nothing came")

// collect gathers acks until enough says so. It returns io.EOF when the child ends before.
func (p *process) collect(acks *[]ack, patience time.Duration, enough func(ack) bool) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case a, ok := <-p.acks:
			if !ok {
				return io.EOF
			}
			if a.What != "full" {
				*acks = append(*acks, a)
			}
			if enough(a) {
				return nil
			}
		case <-limit.C:
			return errSilent
		}
	}
}

// count is enough after n acks.
func count(n int) func(ack) bool {
	return func(a ack) bool {
		if a.What != "full" && a.What != "going" && a.What != "at" {
			n--
		}
		return n <= 0
	}
}

// end waits for the child, once its acks were gathered to the last.
func (p *process) end(acks *[]ack) error {
	p.stdin.Close()
	for a := range p.acks {
		if a.What != "full" {
			*acks = append(*acks, a)
		}
	}
	if err := p.cmd.Wait(); err != nil {
		b := p.stderr.Bytes()
		return fmt.Errorf("child: %w: %s", err, b[:min(len(b), 600)])
	}
	return nil
}

// kill ends the child with SIGKILL.
func (p *process) kill(acks *[]ack) {
	p.cmd.Process.Kill()
	p.end(acks)
}

// outcomeOf checks the store of a task in a process of its own. It is an error when that process dies.
func outcomeOf(ctx context.Context, t task) (o outcome, err error) {
	spec, err := json.Marshal(t)
	if err != nil {
		return o, err
	}
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), taskEnv+"="+string(spec))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return o, fmt.Errorf("%w: %.1000s", err, stderr.Bytes())
	}
	return o, json.Unmarshal(out, &o)
}
