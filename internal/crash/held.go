package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// heldEvents is how many events a run that is held waits for.
const heldEvents = 2

// holdUp starts a run that waits for events or for a person, for sure: else nobody could end its wait. Then it sends the events.
func (c *caller) holdUp(ctx context.Context, o *op, in map[string]any) error {
	function := "held"
	if o.kind == asking {
		function, o.deny = "ask", c.rng.IntN(4) == 0
		in["sent"] = posting{Name: o.name, Random: c.rng.Float64(), Before: c.rng.IntN(40), After: c.rng.IntN(80)}
	}
	input, err := json.Marshal(in)
	if err != nil {
		return err
	}
	body, err := json.Marshal(client.NewRun{Agent: agentName, Function: function, Key: o.key, Input: input})
	if err != nil {
		return err
	}
	var run agent.Run
	if err := c.insist(ctx, "/v1/runs", "run "+o.name, body, &run); err != nil {
		return agent.Wrap(agent.Internal, err, "a run was not started")
	}
	o.run = run.ID
	if o.kind == held {
		pause := time.Duration(c.rng.Float64() * c.rng.Float64() * float64(time.Second))
		c.senders.Go(func() { c.sendEvents(ctx, o, pause) })
	}
	return nil
}

// sendEvents sends a run the events that it waits for, one after the other, each again until it is acknowledged.
func (r *round) sendEvents(ctx context.Context, o *op, pause time.Duration) {
	cl := r.server.client()
	for n := 1; n <= heldEvents; {
		if sleep(ctx, pause) != nil || r.waitUp(ctx) != nil {
			return // the round is over: a run that still waits was found
		}
		r.mu.Lock()
		o.events = n
		r.mu.Unlock()
		_, err := cl.SendEvent(ctx, o.run, "go", fmt.Sprint("event ", n), json.RawMessage(fmt.Sprintf(`{"n":%d}`, n+1)))
		switch agent.KindOf(err) {
		case agent.Unavailable, agent.Cancelled:
			r.note("events sent again")
			pause = glance
			continue
		case agent.Conflict: // it was lost twice, and has failed
			return
		}
		if err != nil {
			r.fail("event %d for run %s of %s: %v", n, o.run, o.name, err)
			return
		}
		r.note("events sent")
		n++
	}
}

// judgeRun tells what the person knows of a call that is asked about.
func (r *round) judgeRun(_ agent.Approval, c agent.ApprovalCall) verdict {
	var of posting
	if json.Unmarshal(c.Args, &of) == nil && c.Tool == ledgerName+".pay" {
		for _, o := range r.ops {
			if o.name == of.Name && o.kind == asking {
				return verdict{name: of.Name, deny: o.deny}
			}
		}
	}
	return verdict{name: string(c.Args), wrong: true}
}

// resolveAll says of each run that is uncertain what became of its call: the ledger tells whether it was made.
func (r *round) resolveAll(ctx context.Context) {
	cl := r.server.client()
	for sleep(ctx, 5*glance) == nil && r.waitUp(ctx) == nil {
		list, err := cl.Runs(ctx, client.RunFilter{Status: agent.Uncertain}, agent.Page{})
		for i := 0; err == nil && i < len(list.Items); i++ {
			err = r.resolveRun(ctx, cl, list.Items[i])
		}
		if k := agent.KindOf(err); err != nil && k != agent.Unavailable && k != agent.Conflict && ctx.Err() == nil { // by then it may be uncertain no more
			r.fail("a run that is uncertain: %v", err)
		}
	}
}

func (r *round) resolveRun(ctx context.Context, cl *client.Client, run agent.Run) error {
	var of *op
	r.mu.Lock()
	for _, o := range r.ops {
		if o.run == run.ID && o.kind == asking {
			of = o
		}
	}
	r.mu.Unlock()
	if of == nil || run.Wait == nil {
		return fmt.Errorf("run %s is uncertain, and has no call that may be: %+v", run.ID, run.Wait)
	}
	say, err := r.resolution(run.Wait.Call, of.name)
	if err != nil {
		return err
	}
	if _, err = cl.ResolveRun(ctx, run.ID, say); err == nil {
		r.note("uncertain: " + say.Action)
	}
	return err
}

// resolution tells what became of a call of the ledger whose effect is not known: its answer, or that it is to be made again.
func (r *round) resolution(call uint64, name string) (agent.Resolution, error) {
	say := agent.Resolution{Call: call, Action: "retry"}
	lines, err := readLedger(r.ledger)
	for _, l := range lines {
		if err == nil && l.Name == name {
			say.Action = "answer"
			say.Output, err = json.Marshal(l.posting)
		}
	}
	return say, err
}
