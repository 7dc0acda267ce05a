package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// campaign is all rounds, of one server or of several side by side.
type campaign struct {
	settings
	world    *world
	deadline time.Time

	mu    sync.Mutex
	out   io.Writer
	total tally
	n     int // rounds that were begun
	kills int // that were given to rounds
}

// rounds makes one round after the other, until enough servers were killed or the time is over. What goes wrong in one ends all.
func (s settings) rounds(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "seed %d\n", s.seed)
	world, err := newWorld()
	if err != nil {
		return err
	}
	defer world.close()
	began := time.Now()
	c := &campaign{settings: s, world: world, deadline: began.Add(s.length), out: out, total: tally{}}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var lines sync.WaitGroup
	for i := range max(1, s.servers) {
		lines.Go(func() {
			for r := c.next(i); r != nil && working.Err() == nil; r = c.next(i) {
				if err := c.make(working, r); err != nil && working.Err() == nil {
					stop(err)
				}
			}
		})
	}
	lines.Wait()
	fmt.Fprintf(out, "in all, %v: %s\n", time.Since(began).Round(100*time.Millisecond), c.total)
	return context.Cause(working)
}

// next returns the next round of a line of servers, nil when there is to be none.
func (c *campaign) next(line int) *round {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.settings.kills - c.kills
	if c.settings.kills > 0 && left <= 0 || !time.Now().Before(c.deadline) {
		return nil
	}
	n, store, apart := c.n, c.stores[c.n%len(c.stores)], c.isolation[c.n/len(c.stores)%len(c.isolation)]
	c.n++
	r := &round{
		settings: c.settings, n: n, world: c.world, deadline: c.deadline, rng: rand.New(rand.NewPCG(c.seed, uint64(n))), tally: tally{}, log: c.out,
		server: &server{
			program: c.program, dir: filepath.Join(c.dir, fmt.Sprint(line, "-", store)), flags: []string{"--store", store, "--isolation", apart},
			memory: c.memory, group: fmt.Sprint("skep-crash-", os.Getpid(), "-", line),
		},
		what: fmt.Sprintf("round %d, %s, %s", n, store, apart),
	}
	r.pause, r.ledger = r.someAnswers, r.server.dir+".ledger"
	if r.lives = r.settings.round; c.settings.kills > 0 {
		r.lives = min(r.lives, left)
	}
	c.kills += r.lives
	return r
}

// make makes a round and tells of it.
func (c *campaign) make(ctx context.Context, r *round) error {
	began, work := time.Now(), r.run
	if c.code {
		code := &codeRound{round: r}
		work, r.pause = code.run, code.someEffects
	}
	if c.boxes {
		work = newBoxRound(r).run
	} else {
		r.server.flags = append(r.server.flags, "--sandbox", "none")
	}
	err := work(ctx)
	r.server.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.add(r.tally)
	fmt.Fprintf(c.out, "%s, %v: %s\n", r.what, time.Since(began).Round(100*time.Millisecond), r.tally)
	for _, what := range r.wrong {
		fmt.Fprintf(c.out, "WRONG: %s: %s\n", r.what, what)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.what, err)
	}
	if len(r.wrong) > 0 {
		return errBroken
	}
	return nil
}

// renew empties a data directory, but for the code that is compiled already. A round with a database of its own has to check no other's data at each start.
func renew(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if e.Name() != "cache" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
