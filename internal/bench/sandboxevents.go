//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/inside"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/store"
)

// chatter is a backend whose CLI says so many events in a turn, as fast as they are taken.
type chatter struct{ events int }

func (c chatter) Spec() backend.Spec { return backend.Spec{Name: "chatter", Binary: "true"} }

func (c chatter) Start(_ context.Context, _ *driver.Prompt, _ *backend.Env, sink func(driver.Event)) (backend.Session, error) {
	sink(driver.NewEvent("", driver.SessionStarted, driver.SessionData{ID: "1", CLI: "chatter"}))
	return &chat{events: c.events, sink: sink, done: make(chan struct{})}, nil
}

type chat struct {
	events int
	sink   func(driver.Event)
	done   chan struct{}
}

func (c *chat) Prompt(_ context.Context, p *driver.Prompt) error {
	go func() {
		c.sink(driver.NewEvent(p.Turn, driver.TurnStarted, nil))
		for i := range c.events {
			c.sink(driver.NewEvent(p.Turn, driver.ToolEnded, driver.ToolData{
				ID: fmt.Sprint("call_", i), Name: "shell", Action: "run", Title: "go test ./...", Output: "ok  \tgithub.com/someone/something/store\t0.412s\n",
			}))
		}
		c.sink(driver.NewEvent(p.Turn, driver.TurnEnded, driver.TurnEnd{Status: driver.TurnCompleted}))
	}()
	return nil
}

func (c *chat) Answer(context.Context, *driver.Answer) error { return nil }
func (c *chat) Interrupt(context.Context) error              { return nil }
func (c *chat) Close(context.Context) error                  { close(c.done); return nil }
func (c *chat) Done() <-chan struct{}                        { return c.done }

// logged are events of a driver as they are stored.
func logged(list []driver.Event) []agent.Event {
	out := make([]agent.Event, len(list))
	for i, e := range list {
		out[i] = agent.Event{Kind: agent.EventCLI, Name: e.Type, Time: e.Time, Data: e.Data}
	}
	return out
}

// eventRates measures how many events pass a driver: into nothing, and into a store on the disk, which has them before they are acknowledged.
func eventRates(ctx context.Context, b *bench) (_ []Figure, err error) {
	st, err := openStore(ctx, filepath.Join(b.dir, "events-store"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	n := b.count(50_000, 10_000)
	var none, stored []float64
	for round := range b.count(5, 3) + 1 {
		nowhere := func(context.Context, string, int64, []driver.Event) error { return nil }
		append1 := func(ctx context.Context, source string, first int64, list []driver.Event) error {
			_, err := st.AppendOnce(ctx, store.AuditLog(agent.DefaultApp), source, first, logged(list))
			return err
		}
		lost, err := b.eventRate(ctx, n, nowhere)
		if err != nil {
			return nil, err
		}
		kept, err := b.eventRate(ctx, n, append1)
		if err != nil {
			return nil, err
		}
		if round > 0 {
			none, stored = append(none, lost), append(stored, kept)
		}
	}
	f := compare("P16", "events through the driver into the store", PerSecond, stored, none, "into nothing", Target{})
	f.Note = fmt.Sprintf("a turn of %d events of 240 bytes; the driver and the server's end are in one process, with a Unix socket between them", n)
	return []Figure{f}, nil
}

// eventRate runs a driver for one turn and returns how many events a second were taken.
func (b *bench) eventRate(ctx context.Context, n int, take func(ctx context.Context, source string, first int64, list []driver.Event) error) (rate float64, err error) {
	dir, err := os.MkdirTemp(b.dir, "turn")
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	id, over := agent.NewSandboxID(time.Now()), make(chan struct{})
	l := link.New(link.Options{
		Sandbox: id, Generation: 1, Token: "token", Log: quiet,
		Welcome: func(context.Context) (driver.WelcomeBody, error) { return driver.WelcomeBody{}, nil },
		Events: func(ctx context.Context, first int64, list []driver.Event) error {
			if err := take(ctx, string(id), first, list); err != nil {
				return err
			}
			if list[len(list)-1].Type == driver.TurnEnded {
				close(over)
			}
			return nil
		},
	})
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return 0, err
	}
	server := &http.Server{Handler: l, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	life, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- inside.Run(life, &inside.Options{
			Boot:     driver.Boot{Version: driver.Version, Sandbox: id, Generation: 1, Socket: socket, Token: "token", Relay: "127.0.0.1:0", Workdir: dir},
			Backends: []backend.Backend{chatter{n}}, Home: dir, Log: quiet, Grace: 100 * time.Millisecond,
		})
	}()
	defer func() {
		end()
		err = errors.Join(err, <-ended, server.Close())
		l.Close(nil)
		l.Wait()
	}()
	if err := l.Ready(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := l.Do(ctx, driver.DoPrompt, &driver.Prompt{Turn: "1", CLI: "chatter", Model: "m", Text: "talk", Permissions: "all"}, nil); err != nil {
		return 0, err
	}
	select {
	case <-over:
		return float64(n) / time.Since(start).Seconds(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the turn did not end: %w", ctx.Err())
	}
}
