package script

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// maxInFlight is how many calls of one cell are under way at once; more wait for their turn.
const maxInFlight = 128

// flight is what a cell waits for: calls to its host and its first timer. One goroutine owns it, the cell's; those of the
// calls only send on settled.
type flight struct {
	ctx     context.Context // ends with the cell's life or with its result
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	calls   map[float64]underWay // by the prelude's id
	waiting []request            // in line
	settled chan answer
	alarm   *time.Timer
	armed   bool
	due     time.Time // of the alarm, by the call's clock
	issued  uint64    // what was asked of the host, in all
	warned  uint64    // calls of tools up to this number were reported, which the code does not wait for
}

type request struct {
	id     float64
	name   string
	body   []byte
	number uint64 // in order of being asked, from 1
	at     string // where in the bundle, of calls of tools
}

type underWay struct {
	request
	cancel context.CancelFunc
}

type answer struct {
	request
	out []byte
	err error
}

// part is an answer as the prelude takes it: how, a value, and what belongs to it.
type part struct {
	how   int
	form  form
	value []byte
	more  []byte // the bytes that came with a response's head
	last  bool   // a piece is the last of its body
}

// parts reads an answer.
func (a answer) parts() (part, error) {
	if a.err != nil {
		return part{}, a.err
	}
	p := part{how: settleValue, form: formText, value: a.out}
	var err error
	switch a.name {
	case abi.CallHTTPOpen, abi.CallHTTPHead:
		p.how = settleHead
		p.value, p.more, err = abi.SplitHTTPHead(a.out)
	case abi.CallHTTPRead:
		p.how, p.form = settlePiece, formBytes
		p.last, p.value, err = abi.SplitHTTPRead(a.out)
	case abi.CallStateGet, abi.CallStateSet, abi.CallStateDelete, abi.CallStateList, abi.CallStateBatch:
		p.how, p.form = settleParse, formJSON
	case abi.CallAgent, abi.CallResult:
		var r abi.AgentResult
		err = json.Unmarshal(a.out, &r)
		p.form, p.value = formOf(agent.Payload{Type: r.Type, Body: r.Output}), r.Output
		if p.form == formJSON {
			p.how = settleParse
		}
	case abi.CallFileRead:
		var r abi.FilePart
		if err = json.Unmarshal(a.out, &r); err == nil {
			p.how, p.more = settleHead, r.Body
			p.value, err = json.Marshal(r.FileInfo)
		}
	default:
		if _, is := called[a.name]; is {
			p.how, p.form = settleParse, formJSON
		}
	}
	if err != nil {
		return part{}, agent.Wrap(agent.Internal, err, "the host's answer cannot be read")
	}
	return p, nil
}

// start puts a call to the host in line. It begins when the guest has nothing more to do at once.
func (v *vm) start(id float64, name string, body []byte) { v.startAt("", id, name, body) }

func (v *vm) startAt(at string, id float64, name string, body []byte) {
	if !v.cell.Hold(int64(len(body))) {
		v.fail(agent.Exceeded(agent.LimitMemory, "the code's calls under way hold more than its limit of %d bytes", v.cell.Env().Limits.Memory))
		return
	}
	v.issued++
	v.waiting = append(v.waiting, request{id, name, body, v.issued, at})
}

// launch begins the calls in line, as far as there is room.
func (v *vm) launch() {
	if len(v.waiting) == 0 {
		return
	}
	if v.ctx == nil {
		v.takeOff()
		v.calls = map[float64]underWay{}
		v.settled = make(chan answer)
	}
	settled, done := v.settled, v.ctx.Done()
	var gone chan struct{}
	if v.rest != nil {
		gone = v.rest.gone
	}
	for len(v.waiting) > 0 && len(v.calls) < maxInFlight {
		r := v.waiting[0]
		v.waiting = v.waiting[1:]
		ctx, cancel := context.WithCancel(v.ctx)
		v.calls[r.id] = underWay{r, cancel}
		call := v.caller(r)
		v.wg.Go(func() {
			defer cancel()
			out, err := call(ctx)
			select {
			case settled <- answer{r, out, err}:
			case <-done:
			case <-gone:
			}
		})
	}
}

// takeOff makes the context of the calls. It ends with the cell, unless the call is suspended before that.
func (v *vm) takeOff() {
	if v.rest == nil {
		v.ctx, v.cancel = context.WithCancel(v.cell.Context())
		return
	}
	v.ctx, v.cancel = context.WithCancel(v.rest.ctx)
	v.rest.unwatch = context.AfterFunc(v.cell.Context(), v.cancel)
}

// abandon forgets a call whose answer nobody wants.
func (v *vm) abandon(id float64) {
	if c, is := v.calls[id]; is {
		c.cancel() // its answer is dropped by the prelude
		if v.rest != nil {
			v.cell.Hold(-int64(len(c.body)))
			delete(v.calls, id) // or before it
		}
		return
	}
	for i, r := range v.waiting {
		if r.id == id {
			v.cell.Hold(-int64(len(r.body)))
			v.waiting = append(v.waiting[:i], v.waiting[i+1:]...)
			return
		}
	}
}

// setAlarm asks to be woken in ms milliseconds; below zero, not at all.
func (v *vm) setAlarm(ms float64) {
	if ms < 0 {
		v.armed = false
		if v.alarm != nil {
			v.alarm.Stop()
		}
		return
	}
	d := time.Duration(math.Min(ms, math.MaxInt32) * float64(time.Millisecond))
	if v.rest != nil {
		v.due = v.cell.Env().Now().Add(d)
	}
	v.arm(d)
}

func (v *vm) arm(d time.Duration) {
	v.armed = true
	if v.alarm == nil {
		v.alarm = time.NewTimer(d)
	} else {
		v.alarm.Reset(d)
	}
}

// next waits for one thing to happen and tells the prelude. It reports false when there is nothing to wait for.
func (v *vm) next() bool {
	if v.rest != nil {
		return v.wait()
	}
	if len(v.waiting) == 1 && len(v.calls) == 0 && !v.armed {
		// Nothing but this call's answer can come next, so it needs no goroutine of its own.
		r := v.waiting[0]
		v.waiting = v.waiting[:0]
		out, err := v.cell.Env().Calls(v.cell.Context(), r.name, r.body)
		if v.cell.Context().Err() != nil {
			v.waiting = append(v.waiting, r) // it is still under way
			v.fail(v.cell.Err())
		} else {
			v.settle(answer{r, out, err})
		}
		return true
	}
	v.launch()
	var alarm <-chan time.Time
	if v.armed {
		alarm = v.alarm.C
	} else if len(v.calls) == 0 {
		return false
	}
	select {
	case <-v.cell.Context().Done():
		v.fail(v.cell.Err())
	case a := <-v.settled:
		v.settle(a)
	case <-alarm:
		v.armed = false
		v.enter(kindAlarm)
	}
	return true
}

func (v *vm) settle(a answer) {
	delete(v.calls, a.id)
	v.cell.Hold(-int64(len(a.body)))
	p, err := a.parts()
	if err != nil {
		p = part{how: settleFailed, form: formText, value: errorBody(err)}
	}
	v.cell.Together(func() { v.give(a.id, p) })
}

// give hands the prelude an answer.
func (v *vm) give(n float64, p part) {
	id, kept := v.smallNumber(n)
	if !kept {
		id = v.newNumber(n)
		defer v.call("qjs_free_value", id)
	}
	value, more := v.newBody(p.form, p.value), uint64(v.h.undefined)
	switch {
	case p.last:
		more = uint64(v.h.isTrue)
	case len(p.more) > 0:
		more = v.newBytes(p.more)
	}
	v.enter(kindSettle, id, uint64(v.h.kinds[p.how]), value, more)
	v.call("qjs_free_value", value)
	if len(p.more) > 0 {
		v.call("qjs_free_value", more)
	}
}

// How the prelude takes an answer.
const (
	settleFailed = iota // an ErrorBody of package abi
	settleParse         // a text of JSON
	settleValue         // the value itself
	settleHead          // a text of JSON, and the bytes that came with it
	settlePiece         // bytes, and whether they are the last
)

// land ends the calls that are still under way and waits for their goroutines.
func (v *vm) land() {
	if v.alarm != nil {
		v.alarm.Stop()
	}
	if v.cancel != nil && !v.isSuspended() {
		v.cancel()
		v.wg.Wait()
	}
}

// errorBody is what the guest learns of err.
func errorBody(err error) []byte {
	e := agent.AsError(err)
	b, _ := json.Marshal(abi.ErrorBody{Kind: e.Kind.String(), Message: e.Msg, Limit: e.Limit.String(), Hint: e.Hint})
	return b
}
