package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// needServer makes sure that there is a server: the one that the user named, one that runs on this machine, or else one of our
// own, which is then what this command speaks to until ctx ends. work gets its goroutine.
func (c *cli) needServer(ctx context.Context, work *sync.WaitGroup) error {
	named := or(c.url, os.Getenv("SKEP_URL")) != ""
	if t, err := c.target(); err == nil {
		if client.New(t.url, t.token, nil).Ready(ctx) == nil {
			return nil
		}
	}
	if named {
		return nil // the first request says what is wrong
	}
	dir, err := c.dataDir()
	if err != nil {
		return err
	}
	err = c.ownServer(ctx, work, serveOptions{listen: defaultListen, dir: dir})
	if err != nil && agent.KindOf(err) == agent.Unavailable { // the port belongs to another program
		err = c.ownServer(ctx, work, serveOptions{listen: "127.0.0.1:0", dir: dir})
	}
	return err
}

func (c *cli) ownServer(ctx context.Context, work *sync.WaitGroup, o serveOptions) error {
	o.cells, o.log = "map", slog.New(slog.DiscardHandler)
	o.python = os.Getenv("SKEP_PYTHON")
	if err := o.vault.resolve(); err != nil {
		return err
	}
	ready := make(chan serverInfo, 1)
	failed := make(chan error, 1)
	work.Go(func() { failed <- serve(ctx, o, func(s serverInfo) { ready <- s }) })
	select {
	case s := <-ready:
		token, err := os.ReadFile(filepath.Join(o.dir, tokenFile))
		c.url, c.token = s.URL, strings.TrimSpace(string(token))
		return err
	case err := <-failed:
		if err == nil {
			err = errors.New("the server stopped at once")
		}
		return err
	}
}
