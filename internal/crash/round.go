package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

//go:embed agent.ts
var code []byte

const (
	agentName = "worker"
	instances = 8               // of a round; each has one client
	patience  = 5 * time.Minute // a machine may have much else to do
)

// round is some kills of one server, under load, and a look at what is left.
type round struct {
	settings
	n        int
	lives    int // of the server that end with a kill
	what     string
	server   *server
	world    *world
	deadline time.Time
	rng      *rand.Rand
	log      io.Writer
	ledger   string                      // file of what the tools of runs and scripts did
	pause    func(context.Context) error // until the server is killed
	senders  sync.WaitGroup              // of events to runs

	mu    sync.Mutex
	up    chan struct{} // closed while the server is up
	ops   []*op
	wrong []string
	tally tally
}

func (r *round) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally[what]++
}

func (r *round) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *round) key(i int) string { return fmt.Sprintf("r%d-%d", r.n, i) }

func (r *round) run(ctx context.Context) error {
	r.up = make(chan struct{})
	if err := errors.Join(renew(r.server.dir), os.RemoveAll(r.ledger)); err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	defer func() { r.server.kill() }()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	listening, leave := context.WithCancel(ctx)
	defer leave()
	insisting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var clients, others sync.WaitGroup
	for i := range instances {
		c := &caller{round: r, i: i, rng: rand.New(rand.NewPCG(r.seed, uint64(r.n*1000+i)))}
		clients.Go(func() { c.work(insisting, working) })
	}
	var listeners []*listener
	for i := range connected * 2 {
		l := newListener(r, i)
		listeners = append(listeners, l)
		others.Go(func() { l.work(listening, working) })
	}
	p := newPerson(r, r.server.client(), r.judgeRun)
	others.Go(func() { p.answer(listening) })
	others.Go(func() { r.resolveAll(listening) })
	err := r.kills(ctx)
	stop()
	if err != nil {
		giveUp()
	}
	clients.Wait()
	if err == nil {
		err = r.settle(ctx)
	}
	giveUp()
	r.senders.Wait()
	if err == nil {
		err = r.catchUp(ctx, listeners)
	}
	leave()
	others.Wait()
	if err == nil {
		err = r.check(ctx, p, listeners)
	}
	return errors.Join(err, r.server.stop())
}

func (r *round) start(ctx context.Context) error {
	began := time.Now()
	if err := r.server.start(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally["slowest start, ms"] = max(r.tally["slowest start, ms"], int(time.Since(began).Milliseconds()))
	close(r.up)
	return nil
}

// prepare stores the agent, unless an earlier round has.
func (r *round) prepare(ctx context.Context) error {
	c := r.server.client()
	if _, err := c.Agent(ctx, agentName); err == nil {
		return nil
	}
	if _, err := c.PutPlugin(ctx, client.Upload{Name: agentName, Version: "1.0.0", Filename: "agent.ts", Body: code}, nil); err != nil {
		return err
	}
	allow, err := agent.ParseTarget("PUT " + strings.TrimSuffix(r.world.url, "/") + "/*")
	if err != nil {
		return err
	}
	_, err = c.CreateAgent(ctx, client.NewAgent{Name: agentName, Plugin: agentName, Grants: agent.Grants{
		HTTP: []agent.HTTPGrant{{Allow: allow}}, Agents: []agent.NamedGrant{{Name: agentName}}, Tools: []agent.NamedGrant{{Name: ledgerName + ".*"}},
	}})
	if err != nil || !r.flows {
		return err
	}
	if err := r.addLedger(ctx, c); err != nil {
		return err
	}
	_, err = c.SetPolicy(ctx, policyText, nil)
	return err
}

// addLedger adds the server of tools, unless an earlier round has.
func (r *round) addLedger(ctx context.Context, c *client.Client) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = c.ToolServer(ctx, ledgerName)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		_, err = c.AddToolServer(ctx, client.NewToolServer{
			Name: ledgerName, Kind: agent.MCPStdio, Command: []string{self}, Env: map[string]string{ledgerEnv: r.ledger}, Trusted: true, Concurrency: 16,
		})
	}
	return err
}

// kills kills the server and starts it again, as often as a round does.
func (r *round) kills(ctx context.Context) error {
	for i := 0; i < r.lives && time.Now().Before(r.deadline); i++ {
		if err := r.pause(ctx); err != nil {
			return err
		}
		r.mu.Lock()
		r.up = make(chan struct{})
		r.mu.Unlock()
		if err := r.end(); err != nil {
			return err
		}
		if err := r.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// end kills the server, or sometimes, in rounds of code, stops it as an operator does.
func (r *round) end() error {
	if r.code && r.rng.IntN(8) == 0 {
		r.note("stops")
		return r.server.stop()
	}
	if r.server.kill() {
		r.note("died by itself")
		if r.memory == 0 {
			return fmt.Errorf("the server ended by itself: %.2000s", r.server.stderr.Bytes())
		}
	}
	r.note("kills")
	return nil
}

// someAnswers waits until clients were told of some calls, however busy the machine is; and sometimes hardly at all, so that the server still recovers.
func (r *round) someAnswers(ctx context.Context) error {
	if r.rng.IntN(4) == 0 {
		return r.sometimeSoon(ctx)
	}
	enough, late := r.answers()+1+r.rng.IntN(5*instances), time.Now().Add(8*time.Second)
	for r.answers() < enough && time.Now().Before(late) {
		if err := sleep(ctx, time.Duration(1+r.rng.IntN(20))*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// answers is how many calls were answered so far.
func (r *round) answers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally["acknowledged"]
}

// sometimeSoon waits: often not for long, so that the server still recovers, and seldom for a second.
func (r *round) sometimeSoon(ctx context.Context) error {
	return sleep(ctx, time.Duration(r.rng.Float64()*r.rng.Float64()*float64(1500*time.Millisecond)))
}

// settle waits until nothing is under way any more.
func (r *round) settle(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began, c := time.Now(), r.server.client()
	for last := ""; ; {
		left, err := r.left(waiting, c)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case waiting.Err() != nil:
			r.fail("after %v there is still work to do, or the server does not say: %s", patience, last)
			return nil
		case err != nil:
			return err
		case left == "":
			r.note("settled")
			r.tally["slowest to settle, ms"] = int(time.Since(began).Milliseconds())
			return nil
		}
		last = left
		_ = sleep(waiting, 50*time.Millisecond) // when it is over, the next look says so
	}
}

// left tells what is under way.
func (r *round) left(ctx context.Context, c *client.Client) (string, error) {
	for i := range instances {
		in, err := c.Instance(ctx, agentName, r.key(i))
		if agent.KindOf(err) == agent.NotFound && err != nil {
			continue
		}
		if err != nil {
			return "", err
		}
		if in.Outbox > 0 || in.Waiting > 0 {
			return fmt.Sprintf("instance %s has %d messages, and %d turns wait", in.Key, in.Outbox, in.Waiting), nil
		}
		if in.Alarms > 0 {
			alarms, err := c.Alarms(ctx, agentName, in.Key, agent.Page{})
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("instance %s has alarms: %+v", in.Key, alarms.Items), nil
		}
	}
	for _, o := range r.ops {
		if o.run == "" || o.ended {
			continue
		}
		run, err := c.Run(ctx, o.run)
		if err != nil && agent.KindOf(err) != agent.NotFound {
			return "", err
		}
		if o.status = run.Status; err == nil && !run.Status.Terminal() && (run.Status != agent.Uncertain || o.kind == asking) {
			return fmt.Sprintf("run %s is %s", o.run, run.Status), nil
		}
		o.ended, o.lost = true, err != nil
		if run.Error != nil {
			r.tally["runs failed: "+run.Error.Msg]++
		}
	}
	return "", nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// effects returns what took effect in an instance, in order.
func (r *round) effects(ctx context.Context, c *client.Client, key string) (names []string, other map[string]string, err error) {
	other = map[string]string{}
	for q := (agent.StateRange{Limit: 1000}); ; {
		page, err := c.ListState(ctx, client.Storage(agentName, key), q)
		if agent.KindOf(err) == agent.NotFound && err != nil {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		for _, e := range page.Items {
			if strings.HasPrefix(e.Key, "e/") {
				names = append(names, string(e.Value.Body))
				if want := fmt.Sprintf("e/%08d", len(names)); e.Key != want {
					r.fail("instance %s: %s where %s should be", key, e.Key, want)
				}
			} else {
				other[e.Key] = string(e.Value.Body)
			}
		}
		if q.After = page.Next; page.Next == "" {
			return slices.Clip(names), other, nil
		}
	}
}
