package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// codeRound is a round in which clients run scripts of code mode, whose tools are those of a ledger, and a person answers for them.
type codeRound struct {
	*round
	cl     *client.Client
	before map[agent.RunID]bool // runs of earlier rounds

	scripts []*script // under mu, as is byCall
	byCall  map[string]*script
}

const (
	scripters  = 6
	glance     = 40 * time.Millisecond // between two looks of a person
	ledgerName = "ledger"
)

func (r *codeRound) run(ctx context.Context) error {
	r.up, r.byCall, r.before = make(chan struct{}), map[string]*script{}, map[agent.RunID]bool{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := r.start(ctx); err != nil {
		return err
	}
	defer func() { r.server.kill() }()
	r.cl = r.server.client()
	if err := r.prepareCode(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	following, late := context.WithCancel(ctx)
	defer late()
	answering, leave := context.WithCancel(ctx)
	defer leave()
	var clients, answers sync.WaitGroup
	for i := range scripters {
		rng := rand.New(rand.NewPCG(r.seed, uint64(r.n*1000+i)))
		clients.Go(func() { r.workCode(working, following, i, rng) })
	}
	p := newPerson(r.round, r.cl, r.judge)
	answers.Go(func() { p.answer(answering) })
	err := r.kills(ctx)
	stop()
	if err != nil {
		cancel()
	}
	timer := time.AfterFunc(patience, late)
	defer timer.Stop()
	began := time.Now()
	clients.Wait()
	leave()
	answers.Wait()
	r.tally["slowest to settle, ms"] = int(time.Since(began).Milliseconds())
	if err == nil {
		checking, done := context.WithTimeout(ctx, patience)
		defer done()
		err = r.checkCode(checking, p)
	}
	return errors.Join(err, r.server.stop())
}

// judge tells what a person knows of a call.
func (r *codeRound) judge(a agent.Approval, c agent.ApprovalCall) verdict {
	var of posting
	if json.Unmarshal(c.Args, &of) != nil {
		return verdict{name: string(c.Args), wrong: true}
	}
	s := r.byCall[of.Name]
	if s == nil || !s.calls[of.Name].asked || ledgerName+"."+s.calls[of.Name].tool != c.Tool || s.calls[of.Name].change != a.Title {
		return verdict{name: of.Name, wrong: true}
	}
	return verdict{name: of.Name, deny: s.calls[of.Name].denied}
}

// someEffects waits until scripts have come some way, since one that is lost twice before it next waits is given up; and sometimes hardly at all,
// so that the server still recovers.
func (r *codeRound) someEffects(ctx context.Context) error {
	if r.rng.IntN(5) == 0 {
		return r.sometimeSoon(ctx)
	}
	lines, err := readLedger(r.ledger)
	if err != nil {
		return err
	}
	enough, late := len(lines)+1+r.rng.IntN(5*scripters), time.Now().Add(8*time.Second)
	for len(lines) < enough && time.Now().Before(late) {
		if err := sleep(ctx, time.Duration(1+r.rng.IntN(30))*time.Millisecond); err != nil {
			return err
		}
		if lines, err = readLedger(r.ledger); err != nil {
			return err
		}
	}
	return nil
}

// prepareCode adds the server of tools and the policy, unless an earlier round has.
func (r *codeRound) prepareCode(ctx context.Context) error {
	if err := r.addLedger(ctx, r.cl); err != nil {
		return err
	}
	if _, err := r.cl.SetPolicy(ctx, policyText, nil); err != nil {
		return err
	}
	return r.eachRun(ctx, func(run agent.Run) { r.before[run.ID] = true })
}

// eachRun calls do for each run of a script.
func (r *codeRound) eachRun(ctx context.Context, do func(agent.Run)) error {
	for page := (agent.Page{}); ; {
		list, err := r.cl.Runs(ctx, client.RunFilter{}, page)
		if err != nil {
			return err
		}
		for _, run := range list.Items {
			do(run)
		}
		if page.After = list.Next; list.Next == "" {
			return nil
		}
	}
}

// workCode runs one script after the other, each to its end.
func (r *codeRound) workCode(working, ctx context.Context, i int, rng *rand.Rand) {
	for n := 0; r.waitUp(working) == nil && working.Err() == nil; n++ {
		s := newScript(fmt.Sprintf("%d.%d.%d", r.n, i, n), rng)
		r.mu.Lock()
		r.scripts = append(r.scripts, s)
		for name := range s.calls {
			r.byCall[name] = s
		}
		r.mu.Unlock()
		err := r.startScript(ctx, s)
		if err == nil {
			err = r.follow(ctx, s)
		}
		if err != nil {
			r.fail("script %s, run %s, which is %s and waits for %+v: %v", s.name, s.run.ID, s.run.Status, s.run.Wait, err)
			return
		}
	}
}

// startScript starts a script.
func (r *codeRound) startScript(ctx context.Context, s *script) error {
	body, err := json.Marshal(map[string]any{"code": s.text, "tools": []string{ledgerName + ".*"}, "wait": 0})
	if err != nil {
		return err
	}
	var out struct {
		Run agent.RunID `json:"run"`
	}
	if err := r.insist(ctx, "/v1/code", "script "+s.name, body, &out); err != nil {
		return err
	}
	s.run.ID = out.Run
	r.note("scripts")
	return nil
}

// follow waits until a script has ended, and says what became of calls whose effect nobody knows.
func (r *codeRound) follow(ctx context.Context, s *script) error {
	for {
		run, err := r.cl.Run(ctx, s.run.ID)
		switch {
		case err == nil && run.Status == agent.Uncertain:
			s.run = run
			err = r.resolve(ctx, s)
		case err == nil:
			if s.run = run; run.Status.Terminal() {
				return nil
			}
		}
		if err != nil && agent.KindOf(err) != agent.Unavailable {
			return err
		}
		if err := sleep(ctx, glance); err != nil {
			return fmt.Errorf("it does not end: %w", err)
		}
		if err := r.waitUp(ctx); err != nil {
			return err
		}
	}
}

// resolve does what a person does about a call whose effect is not known: look whether it was made, and say so.
func (r *codeRound) resolve(ctx context.Context, s *script) error {
	n := s.run.Wait.Call
	p, tool, err := r.callOf(ctx, s.run.ID, n)
	if err != nil {
		return err
	}
	c := s.calls[p.Name]
	if c == nil || c.tool == "look" || c.tool == "set" || c.denied {
		r.fail("script %s: it is uncertain about call %d, of %s with %+v", s.name, n, tool, p)
		return errors.New("that call cannot be uncertain")
	}
	say, err := r.resolution(n, p.Name)
	if err != nil {
		return err
	}
	if say.Action == "retry" && c.gives {
		say.Action, say.Error = "fail", "it was not made"
	}
	r.mu.Lock() // before it is known whether the server hears of it: it is said again if not
	switch say.Action {
	case "answer":
		s.told[p.Name] = true
	case "retry":
		s.again[p.Name]++
	default:
		s.failed[p.Name] = true
	}
	r.mu.Unlock()
	_, err = r.cl.ResolveRun(ctx, s.run.ID, say)
	if err == nil {
		r.note("uncertain: " + say.Action)
	}
	return err
}

// callOf finds in a run's log what a call asked for.
func (r *codeRound) callOf(ctx context.Context, id agent.RunID, n uint64) (p posting, tool string, err error) {
	for e, err := range r.cl.Events(ctx, client.RunLog(id), 0, false) {
		if err != nil {
			return p, "", err
		}
		if e.Kind != agent.EventToolCalled {
			continue
		}
		var use agent.ToolUse
		if err := json.Unmarshal(e.Data, &use); err != nil {
			return p, "", err
		}
		if use.Call == n {
			return p, use.Tool, json.Unmarshal(use.Args, &p)
		}
	}
	return p, "", fmt.Errorf("it is uncertain about call %d, of which its log does not tell", n)
}
