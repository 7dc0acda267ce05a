package script

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// rest is what the driver keeps of a call that can be suspended. The cell's goroutine owns it.
type rest struct {
	*Waiting
	ctx       context.Context // of the caller: calls to the host may outlive the cell
	given     []Delivery      // not yet delivered
	gone      chan struct{}   // closed when the cell is given up and calls to the host go on
	unwatch   func() bool
	suspended *Suspension

	// Exchanges have numbers of the code's own, which no other life and no replay changes. One that was open when the code was
	// suspended is in no table.
	exchanges uint32            // numbers taken
	hosts     map[uint32]uint32 // by the code's number, that of the host
}

func newRest(ctx context.Context, w *Waiting) *rest {
	return &rest{Waiting: w, ctx: ctx, given: w.Deliver, gone: make(chan struct{}), hosts: map[uint32]uint32{}}
}

// wait is next for a call that can be suspended. What the code gets comes through here, one thing at a time.
func (v *vm) wait() bool {
	r := v.rest
	if len(r.given) > 0 {
		v.replay()
		return true
	}
	v.launch()
	ask := true
	for nudge := r.Nudge; len(v.calls) > 0 || v.armed; {
		if ask && r.Rest != nil && !v.answered() && r.Rest(v.cell.Context(), v.pending()) {
			v.suspend()
			return true
		}
		ask = false
		var alarm <-chan time.Time
		if v.armed {
			alarm = v.alarm.C
		}
		select {
		case <-v.cell.Context().Done():
			v.fail(v.cell.Err())
			return true
		case a := <-v.settled:
			if _, wanted := v.calls[a.id]; !wanted {
				v.drop(a)
				continue
			}
			v.hand(a, true)
			return true
		case <-alarm:
			v.ring()
			return true
		case _, open := <-nudge:
			if !open {
				nudge = nil
			}
			ask = true
		}
	}
	return false
}

// answered reports whether what the function came to is known; what still runs then cannot be suspended.
func (v *vm) answered() bool { return v.result != nil || v.response != nil || v.failure != nil }

// pending lists what the code waits for.
func (v *vm) pending() Pending {
	var p Pending
	for _, r := range v.inFlight() {
		p.Calls = append(p.Calls, PendingCall{ID: r.number, Name: r.name, Input: r.body})
	}
	if v.armed {
		p.Alarm = v.due
	}
	return p
}

// replay delivers the next thing given.
func (v *vm) replay() {
	d := v.rest.given[0]
	v.rest.given = v.rest.given[1:]
	if d.ID == 0 {
		if !v.armed {
			v.diverge(d, diverged("a timer was due there, and the code has none"))
			return
		}
		v.ring()
		return
	}
	for i, r := range v.waiting {
		if r.number != d.ID {
			continue
		}
		asked := PendingCall{ID: r.number, Name: r.name, Input: r.body}
		if d.Name != "" && d.Name != r.name {
			v.diverge(d, diverged("call %d was %s there, and is %s now", d.ID, quote(d.Name), quote(r.name)))
		} else if d.Sum != [len(d.Sum)]byte{} && d.Sum != asked.Sum() {
			v.diverge(d, diverged("call %d, %s, had another input there", d.ID, quote(r.name)))
		}
		if v.err != nil {
			return
		}
		v.waiting = append(v.waiting[:i:i], v.waiting[i+1:]...)
		v.hand(answer{r, d.Out, d.Err}, false)
		return
	}
	v.diverge(d, diverged("call %d, %s, is answered there, and the code does not wait for it", d.ID, quote(d.Name)))
}

// diverge fails the call, whose code does not take what is delivered.
func (v *vm) diverge(d Delivery, err error) {
	if v.err == nil && v.rest.Diverged != nil {
		v.rest.Diverged(d, v.pending())
	}
	v.fail(err)
}

// hand gives the code an answer. A live one may name an exchange that is open.
func (v *vm) hand(a answer, live bool) {
	if v.rest.Delivered != nil {
		v.rest.Delivered(Delivery{ID: a.number, Name: a.name, Out: a.out, Err: a.err})
	}
	v.rest.localize(&a, live)
	v.settle(a)
}

// ring tells the code that its first timer is due.
func (v *vm) ring() {
	if v.rest.Delivered != nil {
		v.rest.Delivered(Delivery{})
	}
	v.armed = false
	v.alarm.Stop()
	v.enter(kindAlarm)
}

// drop forgets the answer to a call that the code has abandoned.
func (v *vm) drop(a answer) {
	if a.err != nil || a.name != abi.CallHTTPOpen {
		return
	}
	if head, _, err := readHead(a.out); err == nil && !head.End {
		_, _ = v.cell.Env().Calls(v.cell.Context(), abi.CallHTTPClose, abi.AppendHTTPID(nil, head.ID))
	}
}

// ask is a call to the host that is answered at once.
func (v *vm) ask(name string, in []byte) ([]byte, error) {
	if v.rest == nil {
		return v.cell.Ask(name, in)
	}
	v.issued++
	return v.cell.AskNumbered(v.issued, name, in)
}

// closeExchange gives up an exchange, if it is still there.
func (v *vm) closeExchange(id uint32) {
	if v.rest != nil {
		host, open := v.rest.hosts[id]
		if !open {
			return
		}
		delete(v.rest.hosts, id)
		id = host
	}
	_, _ = v.cell.Ask(abi.CallHTTPClose, abi.AppendHTTPID(nil, id))
}

// call returns what carries a request out, on any goroutine.
func (v *vm) caller(r request) func(context.Context) ([]byte, error) {
	calls, body := v.cell.Env().Calls, r.body
	if v.rest == nil {
		return func(ctx context.Context) ([]byte, error) { return calls(ctx, r.name, body) }
	}
	switch r.name {
	case abi.CallHTTPRead, abi.CallHTTPWrite, abi.CallHTTPHead:
		host, open := v.rest.hosts[exchangeOf(body)]
		if !open {
			return func(context.Context) ([]byte, error) { return nil, errExchangeLost() }
		}
		body = append(abi.AppendHTTPID(nil, host), body[4:]...)
	}
	return func(ctx context.Context) ([]byte, error) { return calls(cell.WithNumber(ctx, r.number), r.name, body) }
}

func errExchangeLost() error {
	return &agent.Error{
		Kind: agent.Unavailable, Msg: "the response was not read to its end when the code was suspended, and is gone",
		Hint: "read a response before a long wait, or make the request again",
	}
}

// localize gives the exchange that an answer names the code's own number.
func (r *rest) localize(a *answer, live bool) {
	if a.err != nil || a.name != abi.CallHTTPOpen && a.name != abi.CallHTTPHead {
		return
	}
	head, more, err := readHead(a.out)
	if err != nil || head.End {
		return // it is over, or not in order, which is found by who reads it
	}
	host := head.ID
	if a.name == abi.CallHTTPOpen {
		r.exchanges++
		head.ID = r.exchanges
	} else {
		head.ID = exchangeOf(a.body)
	}
	if live {
		r.hosts[head.ID] = host
	}
	a.out, a.err = abi.AppendHTTPHead(nil, head, more)
}

// exchangeOf returns the exchange that the input of a call about one begins with, or 0.
func exchangeOf(in []byte) uint32 {
	id, err := abi.SplitHTTPID(in[:min(4, len(in))])
	if err != nil {
		return 0
	}
	return id
}

func readHead(out []byte) (head abi.HTTPHead, more []byte, err error) {
	text, more, err := abi.SplitHTTPHead(out)
	if err == nil {
		err = json.Unmarshal(text, &head)
	}
	return head, more, err
}
