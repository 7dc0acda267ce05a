package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

const (
	opsOfAClient = 25
	times        = 3 // that a repeating alarm comes
)

var (
	ownLog = instance.OwnLog("l")
	bounds = agent.StateGrant{}.Or()
)

// op is what a client asked for, and what it was told.
type op struct {
	name      string
	at        instance.ID
	parts     []string // the effects that it has, in commits of their own
	alarms    []string // the effects that its alarms will have
	sends     []send
	began     int // when, and when it was told, by a clock of the world's
	told      int
	outcome   outcome
	published []string
}

type send struct {
	to   instance.ID
	name string
}

type outcome uint8

const (
	perhaps outcome = iota // all of it or nothing, or the first parts
	done
	undone
)

var errThrown = errors.New("thrown")

// client makes one turn after the other, each at whichever process it reaches.
func (w *world) client(c int) {
	rng := draw(w.seed, fmt.Sprint("client", c))
	for i := range opsOfAClient {
		pass(time.Duration(rng.IntN(300)) * time.Millisecond)
		o := &op{name: fmt.Sprintf("c%d.%d", c, i), at: root(rng.IntN(roots))}
		w.mu.Lock()
		p := w.live[len(w.live)-1]
		if len(w.live) > 1 && rng.IntN(4) == 0 { // it did not hear of the new one
			p = w.live[len(w.live)-2]
		}
		w.ops = append(w.ops, o)
		o.began = len(w.ops)
		w.mu.Unlock()
		err := p.call(o, rng)
		w.mu.Lock()
		o.told = len(w.ops)
		w.mu.Unlock()
		switch {
		case err == nil:
			o.outcome = done
			w.note("acknowledged")
		case p.isDead(), errors.Is(err, instance.ErrUnknown), len(o.parts) > 1:
			w.note("perhaps")
		default:
			o.outcome = undone
			w.note("refused")
		}
		if errors.Is(err, instance.ErrFenced) {
			w.note("fenced")
		}
		w.tell("%s at %s of process %d, %v: %v", o.name, o.at.Key, p.n, o.parts, err)
	}
}

// call is one turn.
func (p *process) call(o *op, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(100))*100*time.Millisecond)
	defer cancel()
	kind, other, n, delay := rng.IntN(12), root(rng.IntN(roots)), rng.IntN(2), time.Duration(rng.IntN(20_000))*time.Millisecond
	t, err := p.Enter(ctx, o.at, durable.Entry{})
	if err != nil {
		return err
	}
	defer t.Abandon()
	part := o.name
	if kind < 2 {
		part += "/a"
	}
	if err := p.effect(ctx, t, o, part); err != nil {
		return err
	}
	switch kind {
	case 0, 1: // something leaves in the middle of it
		o.parts = append(o.parts, o.name+"/b") // so that an error is one of which nobody knows
		if err := t.Commit(ctx); err != nil {
			return err
		}
		if err := p.effect(ctx, t, o, o.name+"/b"); err != nil {
			return err
		}
	case 2, 3:
		o.alarms = append(o.alarms, "alarm "+o.name)
		err = t.SetAlarm(ctx, instance.AlarmEdit{Alarm: instance.Alarm{Name: o.name, At: p.w.now().Add(delay)}})
	case 4:
		for i := range times {
			o.alarms = append(o.alarms, fmt.Sprintf("alarm %s %d", o.name, i+1))
		}
		a := instance.Alarm{Name: o.name + " every", At: p.w.now().Add(delay / 4), Data: []byte("1")}
		err = t.SetAlarm(ctx, instance.AlarmEdit{Alarm: a})
	case 5, 6, 7:
		for i := range 1 + n*3 {
			s := send{other, fmt.Sprintf("message %s %d", o.name, i)}
			o.sends = append(o.sends, s)
			if err := t.Send(ctx, instance.Send{To: s.to, Data: []byte(s.name)}); err != nil {
				return err
			}
		}
	case 8:
		_ = t.SetAlarm(ctx, instance.AlarmEdit{Alarm: instance.Alarm{Name: "never", At: p.w.now()}})
		p.w.note("thrown")
		return errThrown
	case 9:
		err = p.makeKid(ctx, t, o, n)
	case 10:
		if err = t.DeleteChild(ctx, kid(o.at, n), nil); err == nil {
			p.w.note("child deleted")
		}
	}
	if err != nil {
		return err
	}
	return t.Leave(ctx)
}

// makeKid makes a child and has an effect in it.
func (p *process) makeKid(ctx context.Context, t *durable.Turn, o *op, n int) error {
	id := kid(o.at, n)
	o.parts = append(o.parts, o.name)
	if err := t.Child(ctx, instance.Child{ID: id}); err != nil {
		return err
	}
	if err := t.Commit(ctx); err != nil {
		return err
	}
	k, err := p.Enter(durable.Holding(ctx, o.at), id, durable.Entry{Parent: o.at})
	if err != nil {
		return err
	}
	defer k.Abandon()
	if err := p.effect(ctx, k, nil, o.name); err != nil {
		return err
	}
	if err := k.Leave(ctx); err != nil {
		return err
	}
	o.parts = o.parts[:1]
	p.w.note("child")
	return nil
}

// effect is what each turn does: it adds one to a number, and tells of it in a log and in a journal, with the number.
func (p *process) effect(ctx context.Context, t *durable.Turn, o *op, name string) error {
	got, err := t.Get(ctx, "n")
	if err != nil {
		return err
	}
	n := 0
	if len(got) > 0 {
		if n, err = strconv.Atoi(string(got[0].Value.Body)); err != nil {
			return err
		}
	}
	n++
	if _, err := t.Edit(ctx, bounds, agent.StateEdit{Act: agent.StateSet, Key: "n", Value: agent.Text(fmt.Sprint(n))}); err != nil {
		return err
	}
	if err := t.Journal(ctx, instance.Entry{Run: "R", Data: []byte(name)}); err != nil {
		return err
	}
	if err := t.Append(ctx, ownLog, agent.Event{Kind: agent.EventEmit, Name: name, Data: []byte(fmt.Sprint(n))}); err != nil {
		return err
	}
	if o != nil {
		if !slices.Contains(o.parts, name) {
			o.parts = append(o.parts, name)
		}
		t.Then(func() { p.published(o, name) })
	}
	return nil
}

// published is called when what a turn did may be told to the world: it must be durable then.
func (p *process) published(o *op, name string) {
	o.published = append(o.published, name)
	evs, err := p.w.memory.ReadLog(context.Background(), o.at, ownLog, 0, 0)
	if err != nil {
		p.w.fail("%s left before its commit: %v", name, err)
		return
	}
	for _, e := range evs {
		if e.Name == name {
			return
		}
	}
	p.w.fail("%s left before its commit", name)
}

// alarm has its effect, and clears its alarm or sets it again.
func (p *process) alarm(ctx context.Context, d instance.Due) error {
	t, err := p.Enter(ctx, d.ID, durable.Entry{Exists: true})
	if err != nil {
		return err
	}
	defer t.Abandon()
	now := p.w.now()
	a, there, err := t.Alarm(ctx, d.Name)
	if err != nil || !there || a.Gen != d.Gen || a.At.After(now) {
		return err
	}
	if now.Before(a.At) {
		p.w.fail("alarm %s is early", d.Name)
	}
	name, every := strings.CutSuffix(d.Name, " every")
	next := instance.AlarmEdit{Clear: true, Alarm: a}
	what := "alarm " + name
	if every {
		what += " " + string(a.Data)
		if n, _ := strconv.Atoi(string(a.Data)); n < times {
			next = instance.AlarmEdit{Alarm: instance.Alarm{Name: d.Name, At: a.At.Add(time.Second), Data: []byte(strconv.Itoa(n + 1))}}
		}
		p.w.note("repeated alarm")
	}
	p.w.note("alarm")
	if err := p.effect(ctx, t, nil, what); err != nil {
		return err
	}
	if p.throws("alarm") {
		return errThrown
	}
	if err := t.SetAlarm(ctx, next); err != nil {
		return err
	}
	err = t.Leave(ctx)
	p.w.tell("%s in process %d: %v", what, p.n, err)
	return err
}

func (p *process) receive(ctx context.Context, t *durable.Turn, m instance.Message) error {
	p.w.note("message")
	if err := p.effect(ctx, t, nil, string(m.Data)); err != nil {
		return err
	}
	p.w.tell("%s at %s in process %d", m.Data, m.To.Key, p.n)
	if p.throws("receive") {
		return errThrown
	}
	return nil
}

func (p *process) throws(what string) bool {
	return !p.w.calm && p.w.chance(what) < p.w.faults/2
}
