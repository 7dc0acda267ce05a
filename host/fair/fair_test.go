package fair

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
)

// crowd is callers who come back as soon as they have left.
type crowd struct {
	t    *testing.T
	gate *Gate
	ctx  context.Context //nolint:containedctx // of one test
	all  sync.WaitGroup

	mu   sync.Mutex
	held map[string]time.Duration // by app, and by app/agent
}

func (c *crowd) add(who Who, callers int, hold time.Duration) {
	for range callers {
		c.all.Go(func() {
			for c.ctx.Err() == nil {
				leave, err := c.gate.Enter(c.ctx, who)
				if err != nil {
					if agent.KindOf(err) != agent.Cancelled {
						c.t.Error(err)
					}
					return
				}
				time.Sleep(hold)
				leave()
				c.mu.Lock()
				c.held[string(who.App)] += hold
				c.held[string(who.App)+"/"+who.Agent] += hold
				c.mu.Unlock()
			}
		})
	}
}

// ratio wants app a to have held places for about want times as long as b.
func (c *crowd) ratio(a, b string, want float64) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.held[a].Seconds() / c.held[b].Seconds(); math.Abs(got/want-1) > 0.1 || math.IsNaN(got) {
		c.t.Errorf("%s held places for %s and %s for %s: %.3f times as long, want %.3f", a, c.held[a], b, c.held[b], got, want)
	}
}

// empty wants nothing to be left of all who came.
func empty(t *testing.T, g *Gate) {
	t.Helper()
	if taken, waiting := g.Count(); taken != 0 || waiting != 0 {
		t.Errorf("%d places are taken and %d wait after all have gone", taken, waiting)
	}
	if len(g.apps) != 0 || g.weights != 0 || len(g.least.items)+len(g.due.items)+len(g.longest.items) != 0 {
		t.Errorf("apps stay behind: %v, weights %g", g.apps, g.weights)
	}
}

func inCrowd(t *testing.T, places int, fn func(c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &crowd{t: t, ctx: ctx, gate: New(places, &Options{Waiting: 1000, Each: 1000}), held: map[string]time.Duration{}}
		fn(c)
		cancel()
		c.all.Wait()
		empty(t, c.gate)
	})
}

func TestAFloodDelaysOthersByNoMoreThanOneCall(t *testing.T) {
	inCrowd(t, 4, func(c *crowd) {
		c.add(Who{App: "flood"}, 500, time.Second)
		for range 20 {
			time.Sleep(1300 * time.Millisecond)
			came := time.Now()
			leave, err := c.gate.Enter(c.ctx, Who{App: "one"})
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(came); waited > time.Second {
				t.Errorf("waited for %s beside calls of a second", waited)
			}
			time.Sleep(5 * time.Second) // whatever it takes itself
			leave()
		}
	})
}

func TestWeights(t *testing.T) {
	for _, places := range []int{1, 2, 3, 4, 7, 8, 100} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			inCrowd(t, places, func(c *crowd) {
				c.add(Who{App: "light", Weight: 1}, 200, 10*time.Millisecond)
				c.add(Who{App: "heavy", Weight: 3}, 200, 10*time.Millisecond)
				time.Sleep(time.Minute)
				c.ratio("heavy", "light", 3)
			})
		})
	}
}

func TestTimeCountsNotCalls(t *testing.T) {
	for _, places := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			inCrowd(t, places, func(c *crowd) {
				c.add(Who{App: "long"}, 50, 900*time.Millisecond)
				c.add(Who{App: "short"}, 50, 10*time.Millisecond)
				time.Sleep(5 * time.Minute)
				c.ratio("long", "short", 1)
			})
		})
	}
}

func TestMoreAppsThanPlaces(t *testing.T) {
	inCrowd(t, 2, func(c *crowd) {
		for n := range 10 {
			c.add(Who{App: agent.App(fmt.Sprint(n))}, 1+3*n, 10*time.Millisecond)
		}
		c.add(Who{App: "heavy", Weight: 5}, 20, 10*time.Millisecond)
		time.Sleep(time.Minute)
		for n := range 10 {
			c.ratio("heavy", fmt.Sprint(n), 5)
		}
	})
}

func TestAgentsOfAnAppShare(t *testing.T) {
	for _, places := range []int{1, 3, 4} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			inCrowd(t, places, func(c *crowd) {
				c.add(Who{App: "a", Agent: "many"}, 100, 10*time.Millisecond)
				c.add(Who{App: "a", Agent: "few"}, 5, 10*time.Millisecond)
				c.add(Who{App: "b", Agent: "many"}, 100, 10*time.Millisecond)
				time.Sleep(time.Minute)
				c.ratio("a/many", "a/few", 1)
				c.ratio("a", "b", 1)
			})
		})
	}
}

func TestWhoComesLateOwesAndIsOwedNothing(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		c.add(Who{App: "early"}, 10, 10*time.Millisecond)
		time.Sleep(time.Minute)
		before := c.held["early"]
		c.add(Who{App: "late"}, 10, 10*time.Millisecond)
		time.Sleep(time.Minute)
		c.held["early"] -= before
		c.ratio("late", "early", 1)
	})
}

// Whoever has idled while another was busy on half of the places has not saved up a claim to all of them.
func TestNobodySavesUp(t *testing.T) {
	inCrowd(t, 2, func(c *crowd) {
		c.add(Who{App: "lazy"}, 1, time.Hour)
		c.add(Who{App: "busy"}, 1, 10*time.Millisecond)
		time.Sleep(time.Minute)
		before := c.held["busy"]
		c.add(Who{App: "busy"}, 10, 10*time.Millisecond)
		c.add(Who{App: "other"}, 10, 10*time.Millisecond)
		time.Sleep(time.Minute)
		c.held["busy"] -= before
		c.ratio("busy", "other", 1)
	})
}

func refused(t *testing.T, err error) {
	t.Helper()
	if e := agent.AsError(err); e == nil || e.Kind != agent.Unavailable || e.Limit != agent.LimitConcurrency || e.After < time.Second || e.Hint == "" {
		t.Errorf("%#v", err)
	}
}

// queue has callers wait, who tell what became of them.
func queue(g *Gate, who Who, n int) (errs chan error) {
	errs = make(chan error, n)
	for range n {
		go func() {
			leave, err := g.Enter(context.Background(), who)
			if err == nil {
				leave()
			}
			errs <- err
		}()
		synctest.Wait()
	}
	return errs
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, &Options{Waiting: 8, Each: 4})
		leave, err := g.Enter(t.Context(), Who{App: "first"})
		if err != nil {
			t.Fatal(err)
		}
		a := queue(g, Who{App: "a"}, 4)
		_, err = g.Enter(t.Context(), Who{App: "a"}) // past its own bound
		refused(t, err)
		b := queue(g, Who{App: "b"}, 4)
		_, err = g.Enter(t.Context(), Who{App: "b"})
		refused(t, err)
		if _, waiting := g.Count(); waiting != 8 {
			t.Errorf("%d wait, want 8", waiting)
		}
		c := queue(g, Who{App: "c"}, 1) // past the bound of all: the newest of the app that has most is refused
		if _, waiting := g.Count(); waiting != 8 || len(a)+len(b) != 1 {
			t.Errorf("%d wait, want 8; %d were refused, want 1", waiting, len(a)+len(b))
		}
		other := queue(g, Who{App: "a", Agent: "other"}, 1)
		leave()
		for _, all := range []struct {
			from chan error
			n    int
		}{{a, 4}, {b, 4}, {c, 1}, {other, 1}} {
			for range all.n {
				if err := <-all.from; err != nil {
					refused(t, err)
				}
			}
		}
		empty(t, g)
	})
}

// An agent's flood fills its app's queue, and gives way to another agent of the app.
func TestAgentsShareTheirAppsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, &Options{Waiting: 8, Each: 4})
		leave, err := g.Enter(t.Context(), Who{App: "a"})
		if err != nil {
			t.Fatal(err)
		}
		flood := queue(g, Who{App: "a", Agent: "flood"}, 4)
		one := queue(g, Who{App: "a", Agent: "one"}, 2)
		if len(flood) != 2 || len(one) != 0 {
			t.Errorf("%d of the flood were refused, want 2; %d of the other, want 0", len(flood), len(one))
		}
		_, err = g.Enter(t.Context(), Who{App: "a", Agent: "one"})
		refused(t, err)
		leave()
		for range 2 {
			if err := <-one; err != nil {
				t.Error(err)
			}
		}
		for range 4 {
			<-flood
		}
		empty(t, g)
	})
}

// What an app may fill of the queue goes by its weight.
func TestTheQueueIsSharedByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, &Options{Waiting: 8, Each: 8})
		leave, err := g.Enter(t.Context(), Who{App: "x"})
		if err != nil {
			t.Fatal(err)
		}
		heavy, light := queue(g, Who{App: "heavy", Weight: 3}, 8), queue(g, Who{App: "light"}, 4)
		if len(heavy) != 2 || len(light) != 2 {
			t.Errorf("%d of the heavy one were refused and %d of the light one, want 2 and 2", len(heavy), len(light))
		}
		leave()
		for range 8 {
			<-heavy
		}
		for range 4 {
			<-light
		}
		empty(t, g)
	})
}

// Callers who give up at any moment, also when their place comes, leave nothing behind.
func TestWhoGivesUpVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(3, &Options{Waiting: 40, Each: 20})
		var all sync.WaitGroup
		for n := range 300 {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(n)))
				who := Who{App: agent.App(fmt.Sprint(n % 5)), Agent: fmt.Sprint(n % 2), Weight: 1 + n%3}
				for range 20 {
					time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(30))*time.Millisecond)
					if leave, err := g.Enter(ctx, who); err == nil {
						time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
						leave()
					}
					cancel()
				}
			})
		}
		all.Wait()
		empty(t, g)
		for range 3 {
			if _, err := g.Enter(t.Context(), Who{}); err != nil {
				t.Error("a place is lost")
			}
		}
	})
}

func BenchmarkEnter(b *testing.B) {
	g := New(16, nil)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if leave, err := g.Enter(context.Background(), Who{App: "a", Agent: "b"}); err == nil {
				leave()
			}
		}
	})
}
