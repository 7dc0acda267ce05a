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
	calls   map[float64]context.CancelFunc // under way, by the prelude's id
	waiting []request                      // not yet begun
	settled chan answer
	alarm   *time.Timer
	armed   bool
}

type request struct {
	id   float64
	name string
	body []byte
}

type answer struct {
	id   float64
	size int
	body []byte
	err  error
}

// start begins a call to the host, or puts it in line.
func (v *vm) start(id float64, name string, body []byte) {
	if !v.cell.Hold(int64(len(body))) {
		v.fail(agent.Exceeded(agent.LimitMemory, "the code's calls under way hold more than its limit of %d bytes", v.cell.Env().Limits.Memory))
		return
	}
	if v.ctx == nil {
		v.ctx, v.cancel = context.WithCancel(v.cell.Context())
		v.calls = map[float64]context.CancelFunc{}
		v.settled = make(chan answer)
	}
	r := request{id, name, body}
	if len(v.calls) >= maxInFlight {
		v.waiting = append(v.waiting, r)
		return
	}
	v.launch(r)
}

func (v *vm) launch(r request) {
	ctx, cancel := context.WithCancel(v.ctx)
	v.calls[r.id] = cancel
	call, settled, done := v.cell.Env().Calls, v.settled, v.ctx.Done()
	v.wg.Go(func() {
		defer cancel()
		out, err := call(ctx, r.name, r.body)
		select {
		case settled <- answer{r.id, len(r.body), out, err}:
		case <-done:
		}
	})
}

// abandon forgets a call whose answer nobody wants.
func (v *vm) abandon(id float64) {
	if cancel := v.calls[id]; cancel != nil {
		cancel() // its answer is dropped by the prelude
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
	v.armed = true
	d := time.Duration(math.Min(ms, math.MaxInt32) * float64(time.Millisecond))
	if v.alarm == nil {
		v.alarm = time.NewTimer(d)
	} else {
		v.alarm.Reset(d)
	}
}

// next waits for one thing to happen and tells the prelude. It reports false when there is nothing to wait for.
func (v *vm) next() bool {
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
	v.cell.Hold(-int64(a.size))
	if len(v.waiting) > 0 {
		v.launch(v.waiting[0])
		v.waiting = v.waiting[1:]
	}
	ok, body := v.h.isTrue, a.body
	if a.err != nil {
		ok, body = v.h.isFalse, errorBody(a.err)
	}
	id, text := v.call("qjs_new_number", math.Float64bits(a.id)), v.newText(string(body))
	v.enter(kindSettle, uint32(id), uint32(text), ok)
	v.call("qjs_free_value", id)
	v.call("qjs_free_value", text)
}

// land ends the calls that are still under way and waits for their goroutines.
func (v *vm) land() {
	if v.alarm != nil {
		v.alarm.Stop()
	}
	if v.cancel != nil {
		v.cancel()
		v.wg.Wait()
	}
}

// errorBody is what the guest learns of err.
func errorBody(err error) []byte {
	e := agent.AsError(err)
	b, _ := json.Marshal(abi.ErrorBody{Kind: e.Kind.String(), Message: e.Msg, Limit: e.Limit.String()})
	return b
}
