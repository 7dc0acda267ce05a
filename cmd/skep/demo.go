package main

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newDemo(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Start a server, push an agent and stream its run; leaves nothing behind",
		Long: `Start a server of its own on a free port, push an agent in TypeScript to it and stream a run of the agent. The server keeps its
data in a temporary directory, and both are gone at the end.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.demo(cmd.Context()) },
	}
}

func (c *cli) demo(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "skep-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	c.url, c.token, c.data = "", "", dir

	c.note("$ skep serve")
	start := time.Now()
	if err := c.ownServer(ctx, &work, serveOptions{listen: "127.0.0.1:0", dir: dir, store: "memory"}); err != nil {
		return err
	}
	c.note("ready on %s after %s", c.url, took(time.Since(start)))
	cl, err := c.client()
	if err != nil {
		return err
	}

	c.note("\n$ skep push examples/planner --agent planner")
	start = time.Now()
	pushed, err := c.push(ctx, cl, demoParcel(), false)
	if err != nil {
		return err
	}
	if _, _, err := point(ctx, cl, "planner", pushed.Plugin, false); err != nil {
		return err
	}
	c.note("bundled, loaded and stored %s of TypeScript in %s", size(pushed.Plugin.Size), took(time.Since(start)))

	c.note("\n$ skep run planner run '{\"goal\":\"tea and cake\"}'")
	r, err := cl.StartRun(ctx, client.NewRun{Agent: "planner", Function: "run", Input: json.RawMessage(`{"goal":"tea and cake"}`)})
	if err != nil {
		return err
	}
	if err := c.attach(ctx, cl, r, false, true); err != nil {
		return err
	}
	c.note("\nthat was all; docs/guide/quickstart.md makes an agent of your own")
	return nil
}

func demoParcel() parcel {
	return parcel{
		upload: upload{Name: "planner", File: "main.ts", Body: skep.Demo}, at: "examples/planner", dir: "examples/planner",
		kind: agent.Script, name: "planner", version: "1",
	}
}

// note tells what the demo does, beside what the commands print.
func (c *cli) note(format string, args ...any) { c.printf(format+"\n", args...) }
