//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

const hogs = 2

// besideHogs is how calls fared in turns of quiet and with hogs, seconds each.
type besideHogs struct{ quiet, busy, quietP50, busyP50 []float64 }

func (s *besideHogs) add(quiet, busy []float64) {
	s.quiet = append(s.quiet, percentile(quiet, 99))
	s.busy = append(s.busy, percentile(busy, 99))
	s.quietP50 = append(s.quietP50, median(quiet))
	s.busyP50 = append(s.busyP50, median(busy))
}

func (s *besideHogs) figure(name string) Figure {
	f := compare("P7", name, Seconds, s.busy, s.quiet, "in quiet", Target{Bound: 2})
	f.Note = fmt.Sprintf("p50 beside them %s, in quiet %s", Seconds.format(median(s.busyP50)), Seconds.format(median(s.quietP50)))
	return f
}

// cellsBesideHogs calls cells in this process, one after another, with never a moment in which the caller is not running.
func cellsBesideHogs(ctx context.Context, h *host.Host, rounds, n int) (Figure, error) {
	var s besideHogs
	for range rounds {
		quiet, err := greetings(ctx, h, n)
		if err != nil {
			return Figure{}, err
		}
		hogCtx, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		for range hogs {
			all.Go(func() {
				_, _ = h.Call(hogCtx, host.Call{Plugin: "script", Tenant: "hog", Function: "loop", Limits: agent.MaxLimits()})
			})
		}
		busy, err := greetings(ctx, h, n)
		stop()
		all.Wait()
		if err != nil {
			return Figure{}, err
		}
		s.add(quiet, busy)
	}
	return s.figure(fmt.Sprintf("a cell's p99 beside %d hogs", hogs)), nil
}

func greetings(ctx context.Context, h *host.Host, n int) ([]float64, error) {
	var took []float64
	for range n {
		start := time.Now()
		_, err := h.Call(ctx, host.Call{Plugin: "greet", Tenant: "bench", Function: "greet", Input: agent.JSON([]byte(`{"name":"bee"}`))})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(start).Seconds())
	}
	return took, nil
}

// hogLife is how long a hog lives in the server, which stops it at that limit.
const hogLife = 1200 * time.Millisecond

// callersBesideHogs calls the server, whose goroutines wait for the network between calls and have to get a processor
// back from the hogs each time.
func (b *bench) callersBesideHogs(ctx context.Context, skep *server, name string) (Figure, error) {
	hog, err := json.Marshal(map[string]any{
		"code": "export default () => { for (;;) ; }", "language": "js", "limits": agent.Limits{Wall: hogLife},
	})
	if err != nil {
		return Figure{}, err
	}
	caller, err := skep.dial()
	if err != nil {
		return Figure{}, err
	}
	defer caller.conn.Close()
	var s besideHogs
	for range b.count(5, 1) {
		quiet, err := caller.greet(200, nil)
		if err != nil {
			return Figure{}, err
		}
		ended := make(chan struct{}, hogs)
		for range hogs {
			c, err := skep.dial()
			if err != nil {
				return Figure{}, err
			}
			defer c.conn.Close()
			go func() {
				_, _ = c.do(ask{path: "/v1/code", contentType: "application/json", body: hog}) // it ends with a refusal
				ended <- struct{}{}
			}()
		}
		busy, err := caller.greet(400, ended)
		if err != nil {
			return Figure{}, err
		}
		for range hogs {
			<-ended
		}
		if len(busy) < 100 {
			return Figure{}, errors.New("hardly a call got through beside the hogs")
		}
		s.add(quiet, busy)
	}
	return s.figure(fmt.Sprintf("a caller's p99 beside %d hogs%s", hogs, name)), nil
}

// greet calls the stored agent n times, or until something has ended.
func (c *caller) greet(n int, ended <-chan struct{}) ([]float64, error) {
	var took []float64
	for len(took) < n && len(ended) == 0 {
		d, err := c.do(greeting("/v1/agents/bench/call/greet"))
		if err != nil {
			return nil, err
		}
		took = append(took, d.Seconds())
	}
	return took, nil
}
