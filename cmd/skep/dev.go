package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newDev(c *cli) *cobra.Command {
	d := &dev{c: c, forget: func() {}}
	cmd := &cobra.Command{
		Use:   "dev FILE|DIR",
		Short: "Push code at every save, and show what it says",
		Long: `Watch a file or directory, and at every save build it, push it and point an agent of the same name at it. Console output of the
agent is shown as it comes. With --call a function is called after each push. The last calls that skep call makes of the agent
meanwhile, on this machine, are made again after each push, too, unless --replay=false is given.

When no server runs on this machine, one is started for as long as dev runs.`,
		Example: "  skep dev hello.ts\n  skep dev . --call greet --input '{\"name\":\"Ada\"}'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.path = args[0]
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&d.name, "name", "", "name of the agent; the file's or directory's unless given")
	cmd.Flags().StringVar(&d.function, "call", "", "function to call after each push")
	cmd.Flags().StringVar(&d.input, "input", "", "input for --call: JSON, text, or @FILE")
	cmd.Flags().BoolVar(&d.replay, "replay", true, "make the last calls again after each push")
	return cmd
}

// dev is one skep dev.
type dev struct {
	c               *cli
	path            string
	name            string
	function, input string
	replay          bool
	forget          func() // ends the replays
	replays         string // the file that the last calls are in; "" until the first push

	mu sync.Mutex // guards what is printed
}

func (d *dev) run(ctx context.Context) error {
	w, err := newWatcher(d.path)
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "cannot watch " + d.path, Err: err}
	}
	defer w.Close()
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	if err := d.c.needServer(ctx, &work); err != nil {
		return err
	}
	cl, err := d.c.client()
	if err != nil {
		return err
	}
	d.say("watching %s", d.path)
	started := time.Now()
	following := false
	defer func() { d.forget() }()
	for {
		err := d.turn(ctx, cl)
		if ctx.Err() != nil {
			return nil // Ctrl-C is how dev ends
		}
		if err != nil {
			d.complain(ctx, err)
		} else if !following {
			following = true
			d.remember(ctx)
			work.Go(func() { d.follow(ctx, cl, started) })
		}
		if err := w.wait(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// turn builds, checks, pushes and calls once.
func (d *dev) turn(ctx context.Context, cl *client.Client) error {
	start := time.Now()
	p, err := d.c.readCodeAt(ctx, d.path)
	if err != nil {
		return err
	}
	if d.name == "" {
		d.name = p.name
	}
	p.name, p.version = d.name, ""
	pushed, err := d.c.push(ctx, cl, p, true)
	if err != nil {
		return err
	}
	if _, _, err := point(ctx, cl, d.name, pushed.Plugin, true); err != nil {
		return err
	}
	if pushed.Unchanged {
		d.say("no change; agent %s runs %s", d.name, pushed.Plugin.Version)
	} else {
		d.say("agent %s runs %s (%s)", d.name, pushed.Plugin.Version, took(time.Since(start)))
	}
	if tool := typeChecker(p.dir); tool != "" && p.kind == agent.Script {
		if err := typeCheck(ctx, tool, d.path); err != nil {
			d.complain(ctx, withSource(err, p.dir))
		}
	}
	var calls []pastCall
	if d.replays != "" && !pushed.Unchanged {
		if calls, err = readReplays(d.replays); err != nil {
			calls = nil // a call is writing it
		}
	}
	if d.function != "" {
		var args []string
		if d.input != "" {
			args = []string{d.input}
		}
		input, err := d.c.input(args, "")
		if err != nil {
			return err
		}
		calls = append(calls, pastCall{d.function, input})
	}
	for _, call := range calls {
		if err := d.call(ctx, cl, call); err != nil && ctx.Err() == nil {
			d.complain(ctx, withSource(err, p.dir))
		}
	}
	return nil
}

func (d *dev) call(ctx context.Context, cl *client.Client, call pastCall) error {
	output, _, err := cl.Call(ctx, d.name, call.Function, call.Input, 0)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.c.stderr, "%s %s:\n", d.name, call.Function)
	return d.c.printBytes(output)
}

// remember has skep call leave its calls for this dev.
func (d *dev) remember(ctx context.Context) {
	if !d.replay {
		return
	}
	file, stop, err := d.c.startReplays(d.name)
	if err != nil {
		d.complain(ctx, agent.Wrap(agent.Invalid, err, "calls cannot be made again after each save"))
		return
	}
	d.replays, d.forget = file, stop
}

// follow prints the agent's log from the time dev was started on.
func (d *dev) follow(ctx context.Context, cl *client.Client, from time.Time) {
	p := eventPrinter{w: d.c.stdout, json: d.c.json}
	for e, err := range cl.Events(ctx, client.AgentLog(d.name), 0, true) {
		if err != nil {
			if !errors.Is(err, context.Canceled) && ctx.Err() == nil {
				d.complain(ctx, err)
			}
			return
		}
		if e.Time.Before(from) {
			continue
		}
		d.mu.Lock()
		err = p.print(e)
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (d *dev) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.c.stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func (d *dev) complain(ctx context.Context, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.c.show(ctx, err)
}
