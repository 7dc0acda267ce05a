package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// op is what a client asked for, and what it was told.
type op struct {
	name    string
	key     string // of its instance
	by      string // who asked for it
	kind    kind
	to      []string
	outcome outcome
	n       int  // the number that it was told
	url     bool // its alarm tells the outside world
	shares  bool // it changes what clients share, too

	run    agent.RunID
	status agent.RunStatus
	ended  bool // the run
	lost   bool // the run
	events int  // that were sent to the run, or may have been; under mu
	deny   bool // what the person says to the call
}

type kind uint8

const (
	plain kind = iota // one effect
	named             // the same, made again until it is answered
	alarmed
	beating
	sending
	telling // the outside world, between two effects
	saying  // a message to a session, which starts a run
	flowing // a run with steps and a wait
	held    // a run that waits for events
	asking  // a run with a call that a person has to allow
	setting // a key, from outside
	failing
	kinds
	calling = kinds // one effect, asked for over a socket
)

func (k kind) String() string {
	return [...]string{"plain", "named", "alarm", "repeating alarm", "messages", "outside world", "run", "flow", "run that waits for events", "run with an approval", "key", "failing", "call over a socket"}[k]
}

type outcome uint8

const (
	perhaps outcome = iota // it took effect as a whole or not at all
	done
	undone
)

const beats = 3

// caller is a client of one instance, which makes one call after the other.
type caller struct {
	*round
	i       int
	rng     *rand.Rand
	session agent.SessionID
	calls   int
}

// work makes calls until working ends. Those that are made until they are answered go on until ctx does.
func (c *caller) work(ctx, working context.Context) {
	for working.Err() == nil {
		if c.waitUp(working) != nil {
			return
		}
		o := &op{name: fmt.Sprintf("%d.%d.%d", c.n, c.i, c.calls), key: c.key(c.i), kind: kind(c.rng.IntN(int(kinds)))}
		c.calls++
		if o.kind >= flowing && o.kind <= asking && !c.flows {
			o.kind = plain
		}
		c.add(o)
		o.outcome = c.outcomeOf(c.do(ctx, o))
		if err := sleep(working, time.Duration(c.rng.IntN(20))*time.Millisecond); err != nil {
			return
		}
	}
}

func (r *round) add(o *op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, o)
}

func (r *round) waitUp(ctx context.Context) error {
	r.mu.Lock()
	up := r.up
	r.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// insist asks the server for something, and again under the same name until that is acknowledged.
func (r *round) insist(ctx context.Context, path, name string, body []byte, out any) error {
	for {
		again, err := r.server.post(ctx, path, name, body, out)
		if err == nil || !again || ctx.Err() != nil {
			return err
		}
		r.note("starts asked for again")
		if err := sleep(ctx, glance); err != nil {
			return err
		}
		if err := r.waitUp(ctx); err != nil {
			return err
		}
	}
}

func (r *round) outcomeOf(err error) outcome {
	switch kind := agent.KindOf(err); {
	case err == nil:
		r.note("acknowledged")
		return done
	case kind == agent.Failed, kind == agent.Invalid, kind == agent.Denied, kind == agent.NotFound, kind == agent.Exhausted:
		r.note("refused: " + kind.String())
		return undone
	default:
		r.note("perhaps: " + kind.String())
		return perhaps
	}
}

// do makes one call and tells what it was told.
func (c *caller) do(ctx context.Context, o *op) (err error) {
	insisting := ctx
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	in := map[string]any{"name": o.name}
	if o.kind <= named || o.kind == failing {
		o.shares = c.rng.IntN(3) == 0
		in["share"] = o.shares
	}
	switch o.kind {
	case alarmed:
		in["alarm"] = c.rng.Float64() * 3
		if o.url = c.rng.IntN(2) == 0; o.url {
			in["url"] = c.world.url
		}
	case beating:
		in["every"], in["times"] = 1, beats
	case sending:
		for range 1 + c.rng.IntN(3) {
			o.to = append(o.to, c.key(c.rng.IntN(instances)))
		}
		in["to"] = o.to
	case telling:
		in["url"] = c.world.url
	case failing:
		in["fail"] = true
	case saying:
		return c.say(ctx, o)
	case flowing:
		in["url"], in["alarm"] = c.world.url, c.rng.Float64()*2
		body, err := json.Marshal(in)
		if err != nil {
			return err
		}
		run, err := c.server.client().StartRun(ctx, client.NewRun{Agent: agentName, Function: "flow", Key: o.key, Input: body})
		o.run = run.ID
		return err
	case held, asking:
		return c.holdUp(insisting, o, in)
	case setting:
		_, err := c.server.client().SetState(ctx, client.Storage(agentName, o.key), "key "+o.name, agent.Text(o.name), new(int64))
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	once := ""
	if o.kind == named {
		once = o.name
	}
	for {
		out, _, err := c.server.client().CallInstanceOnce(ctx, agentName, o.key, "op", once, agent.JSON(body), 0)
		if err == nil {
			return json.Unmarshal(out.Body, &o.n)
		}
		if once == "" || agent.KindOf(err) != agent.Unavailable || ctx.Err() != nil {
			return err
		}
		if err := c.waitUp(ctx); err != nil {
			return err
		}
		c.note("made again")
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// say sends a message to the client's session with the instance, which starts a run.
func (c *caller) say(ctx context.Context, o *op) error {
	cl := c.server.client()
	if c.session == "" {
		se, err := cl.CreateSession(ctx, client.NewSession{Agent: agentName, Key: o.key})
		if err != nil {
			return err
		}
		c.session = se.ID
	}
	text, err := json.Marshal(o.name)
	if err != nil {
		return err
	}
	run, err := cl.Send(ctx, c.session, agent.Message{Content: text})
	o.run = run.ID
	return err
}
