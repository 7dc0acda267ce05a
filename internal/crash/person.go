package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// person looks at what waits for an answer, thinks, and answers.
type person struct {
	*round
	cl    *client.Client
	rng   *rand.Rand
	judge func(a agent.Approval, c agent.ApprovalCall) verdict // called under mu
	late  bool                                                 // a question may be withdrawn before it is answered
	asked map[agent.ApprovalID]*question
	ids   map[string]agent.ApprovalID // of the question about a call
}

// verdict is what a person knows of a call that is asked about.
type verdict struct {
	name  string // no two questions are about the same
	wrong bool   // nobody has to ask about it
	deny  bool
}

// question is one that the person was asked.
type question struct {
	agent.Approval
	deny    bool
	due     time.Time // when it is answered
	tried   bool      // perhaps the server has the answer
	settled bool      // it has it
}

func newPerson(r *round, cl *client.Client, judge func(agent.Approval, agent.ApprovalCall) verdict) *person {
	return &person{
		round: r, cl: cl, judge: judge, rng: rand.New(rand.NewPCG(r.seed, uint64(r.n*1000+999))),
		asked: map[agent.ApprovalID]*question{}, ids: map[string]agent.ApprovalID{},
	}
}

func (p *person) answer(ctx context.Context) {
	for sleep(ctx, glance) == nil && p.waitUp(ctx) == nil {
		open, err := p.open(ctx)
		if err != nil {
			p.unlessDown(ctx, "list approvals", err)
			continue
		}
		for _, batch := range p.due(open) {
			p.say(ctx, batch)
		}
	}
}

// unlessDown notes an error that is not the server's death.
func (p *person) unlessDown(ctx context.Context, what string, err error) {
	if agent.KindOf(err) != agent.Unavailable && ctx.Err() == nil {
		p.fail("%s: %v", what, err)
	}
}

// open returns all open questions.
func (p *person) open(ctx context.Context) (out []agent.Approval, err error) {
	for page := (agent.Page{}); ; {
		list, err := p.cl.Approvals(ctx, client.ApprovalFilter{}, page)
		if err != nil {
			return nil, err
		}
		out = append(out, list.Items...)
		if page.After = list.Next; list.Next == "" {
			return out, nil
		}
	}
}

// due takes a look at questions and returns those to answer now: those of one run with one answer together, but for those of which nobody knows
// whether they were answered.
func (p *person) due(open []agent.Approval) (out [][]*question) {
	type batch struct {
		run  agent.RunID
		deny bool
	}
	at := map[batch]int{}
	for _, a := range open {
		q := p.asked[a.ID]
		if q == nil {
			q = &question{Approval: a, due: time.Now().Add(time.Duration(p.rng.Float64() * p.rng.Float64() * float64(2*time.Second)))}
			p.asked[a.ID] = q
			p.look(q)
			p.note("questions")
		}
		b := batch{a.Run, q.deny}
		i, there := at[b]
		switch {
		case q.settled:
			p.fail("approval %s is asked for again after it was answered", a.ID)
		case len(a.Calls) != len(q.Calls) || a.Calls[0].ArgsDigest != q.Calls[0].ArgsDigest || !a.Created.Equal(q.Created):
			p.fail("approval %s was about %+v and is about %+v", a.ID, q.Approval, a)
		case time.Now().Before(q.due):
		case q.tried || !there:
			if !q.tried {
				at[b] = len(out)
			}
			out = append(out, []*question{q})
		default:
			out[i] = append(out[i], q)
		}
	}
	return out
}

// look reads a question when it is first seen.
func (p *person) look(q *question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range q.Calls {
		if agent.DigestOf(c.Args) != c.ArgsDigest {
			p.wrong = append(p.wrong, "approval "+string(q.ID)+" shows "+string(c.Args)+", which is not what would be sent")
			continue
		}
		v := p.judge(q.Approval, c)
		before, twice := p.ids[v.name]
		p.ids[v.name] = q.ID
		switch {
		case twice:
			p.wrong = append(p.wrong, "call "+v.name+" is asked about by "+string(before)+" and by "+string(q.ID))
		case v.wrong:
			p.wrong = append(p.wrong, "approval "+string(q.ID)+" is about "+c.Tool+" "+string(c.Args)+", about which nobody has to ask")
		default:
			q.deny = v.deny
		}
	}
}

// say answers questions of one run.
func (p *person) say(ctx context.Context, batch []*question) {
	var ids []agent.ApprovalID
	tried := false
	for _, q := range batch {
		ids, tried = append(ids, q.ID), tried || q.tried
	}
	answer := agent.ApprovalAnswer{Allow: !batch[0].deny}
	if batch[0].deny {
		answer.Reason = "not today"
	}
	_, err := p.cl.AnswerApprovals(ctx, ids, answer)
	switch {
	case err == nil:
		p.note("answers")
	case agent.KindOf(err) == agent.Conflict:
		run, failed := p.cl.Run(ctx, batch[0].Run)
		switch {
		case failed != nil, run.Status.Terminal(): // then nobody waits for it any more
			return
		case p.late: // the log tells who answered
			p.note("answers that came too late")
		case !tried:
			p.fail("the first answer to %v: %v", ids, err)
		}
		if !p.late {
			p.note("answers that were taken after all")
		}
	default:
		for _, q := range batch {
			q.tried = true
		}
		p.note("answers given again")
		p.unlessDown(ctx, "answer approvals", err)
		return
	}
	for _, q := range batch {
		q.settled = true
	}
}
