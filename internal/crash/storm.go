package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// alarmsEach is how many alarms of a storm one instance has.
const alarmsEach = 100

// storms makes a storm with each kind of database.
func (s settings) storms(ctx context.Context, out io.Writer) error {
	world, err := newWorld()
	if err != nil {
		return err
	}
	defer world.close()
	for i, store := range s.stores {
		r := &round{settings: s, n: i, world: world, tally: tally{}, log: out, server: &server{
			program: s.program, dir: filepath.Join(s.dir, "storm-"+store), flags: []string{"--store", store, "--isolation", s.isolation[0]}, memory: s.memory, group: fmt.Sprint("skep-crash-", os.Getpid()),
		}}
		if err := r.storm(ctx, store); err != nil {
			return fmt.Errorf("%s: %w", store, err)
		}
		for _, what := range r.wrong {
			fmt.Fprintf(out, "WRONG: %s\n", what)
		}
		if len(r.wrong) > 0 {
			return errBroken
		}
	}
	return nil
}

// storm sets many alarms that are due within a minute, which the server is killed in the middle of. Each must have its effect once.
func (r *round) storm(ctx context.Context, store string) error {
	r.up = make(chan struct{})
	if err := r.start(ctx); err != nil {
		return err
	}
	defer func() { r.server.kill() }()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	keys := make([]string, (r.settings.storm+alarmsEach-1)/alarmsEach)
	for i := range keys {
		keys[i] = fmt.Sprint("storm", i)
	}
	began := time.Now()
	// Setting them takes a while: they begin when that must be over.
	first := began.Add(3*time.Second + time.Duration(r.settings.storm)*time.Millisecond)
	err := together(64, keys, func(key string) error {
		in, err := json.Marshal(map[string]any{"count": alarmsEach, "from": first.UnixMilli(), "within": r.within.Milliseconds()})
		if err != nil {
			return err
		}
		_, _, err = r.server.client().CallInstance(ctx, agentName, key, "storm", agent.JSON(in), 0)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(r.log, "%s: %d alarms were set in %v\n", store, len(keys)*alarmsEach, time.Since(began).Round(time.Millisecond))
	if time.Now().After(first) {
		return errors.New("setting them took longer than there was time for")
	}
	if err := sleep(ctx, time.Until(first.Add(r.within/3))); err != nil {
		return err
	}
	r.server.kill()
	r.up = make(chan struct{})
	killed := time.Now()
	if err := r.start(ctx); err != nil {
		return err
	}
	down := time.Since(killed)
	return r.afterStorm(ctx, store, keys, killed, down)
}

// afterStorm waits until all alarms were dealt with, and checks them. Of one that was due while the server was down the time from its start
// on counts.
func (r *round) afterStorm(ctx context.Context, store string, keys []string, killed time.Time, down time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var late, later []float64 // seconds: of those due while the server was up and had caught up, and of the others
	err := together(8, keys, func(key string) error {
		c := r.server.client()
		for {
			in, err := c.Instance(ctx, agentName, key)
			if err != nil {
				return err
			}
			if in.Alarms == 0 {
				break
			}
			if err := sleep(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		names, _, err := r.effects(ctx, c, key)
		if err != nil {
			return err
		}
		seen := map[int]bool{}
		for _, name := range names {
			var n int
			var due, at int64
			if _, err := fmt.Sscanf(strings.TrimPrefix(name, "storm "), "%d %d %d", &n, &due, &at); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
			if seen[n] {
				r.fail("instance %s: alarm %d had its effect twice", key, n)
			}
			if at < due {
				r.fail("instance %s: alarm %d is early by %d ms", key, n, due-at)
			}
			seen[n] = true
			up := killed.Add(down).UnixMilli()
			mu.Lock()
			if due >= killed.UnixMilli()-1000 && due < up+r.within.Milliseconds()/6 {
				later = append(later, float64(at-max(due, up))/1000)
			} else {
				late = append(late, float64(at-due)/1000)
			}
			mu.Unlock()
		}
		if len(seen) != alarmsEach {
			r.fail("instance %s: %d of %d alarms had an effect", key, len(seen), alarmsEach)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(r.log, "%s: %d alarms had their effect once, over a kill that took %v; late by %s; around the kill, after the start, by %s\n",
		store, len(late)+len(later), down.Round(time.Millisecond), spread(late), spread(later))
	return nil
}

func spread(xs []float64) string {
	if len(xs) == 0 {
		return "-"
	}
	slices.Sort(xs)
	at := func(p float64) float64 { return xs[min(int(p*float64(len(xs))), len(xs)-1)] }
	return fmt.Sprintf("p50 %.3f s, p99 %.3f s, at most %.3f s", at(0.5), at(0.99), xs[len(xs)-1])
}

// together does something for each of a list from some goroutines.
func together(workers int, list []string, do func(string) error) error {
	next := make(chan string)
	failed := make(chan error, workers)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for v := range next {
				if err := do(v); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	var err error
	for _, v := range list {
		select {
		case next <- v:
		case err = <-failed:
		}
		if err != nil {
			break
		}
	}
	close(next)
	all.Wait()
	select {
	case e := <-failed:
		err = errors.Join(err, e)
	default:
	}
	return err
}
