package script

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// Run is Call for calls that may be suspended, or that go on. The usage counts also when the call failed.
func (a *Agent) Run(ctx context.Context, call Call) (Result, error) {
	resumed := call.Waiting != nil && call.Waiting.Resume != nil
	if !resumed && !slices.Contains(a.exports, call.Function) && !abi.Reserved(call.Function) {
		if call.Function == "fetch" && a.fetch {
			return Result{}, &agent.Error{
				Kind: agent.NotFound, Msg: "the code has no function \"fetch\", but a handler of HTTP requests",
				Hint: "send it requests: /v1/agents/NAME/http/ and any path",
			}
		}
		return Result{}, noFunction(call.Function, a.exports)
	}
	return a.engine.outcome(ctx, a.image, a.source, call, func(v *vm) error {
		if !resumed {
			if err := v.enterFunction(call); err != nil {
				return err
			}
		}
		return v.drive(v.hasEnded, neverEnds)
	})
}

// RunBundle is EvalBundle for calls that may be suspended, or that go on, which they do with the same bundle and the same
// function and input.
func (e *Engine) RunBundle(ctx context.Context, b *Bundle, call Call) (Result, error) {
	return e.outcome(ctx, e.base, b.Map, call, func(v *vm) error {
		resumed := v.rest != nil && v.rest.Resume != nil
		if !resumed {
			v.begin(kindBegin, v.newConfig(call.Config))
			v.startModule(b)
		}
		if !resumed || v.loading {
			if err := v.loadModule(); err != nil || v.isSuspended() {
				return err
			}
			if f := call.Function; f == "" && len(v.loaded.Exports) > 0 && !slices.Contains(v.loaded.Exports, "default") ||
				f != "" && !slices.Contains(v.loaded.Exports, f) {
				return noFunction(f, v.loaded.Exports)
			}
			if err := v.enterFunction(call); err != nil {
				return err
			}
		}
		return v.drive(v.hasEnded, neverEnds)
	})
}

// outcome runs fn and tells what became of the call.
func (e *Engine) outcome(ctx context.Context, image *cell.Image, m *SourceMap, call Call, fn func(*vm) error) (Result, error) {
	var res Result
	h := &e.handles
	if w := call.Waiting; w != nil && w.Resume != nil && w.Image != nil {
		var err error
		if image, h, err = importImage(image, w.Image, call.Limits.Or(agent.DefaultLimits()).Memory); err != nil {
			return res, err
		}
		defer func() { _ = image.Close() }()
	}
	usage, err := e.run(ctx, image, h, m, call, func(v *vm) error {
		if err := fn(v); err != nil {
			return err
		}
		if v.isSuspended() {
			res.Suspended = v.rest.suspended
			return nil
		}
		if v.rest != nil && len(v.rest.given) > 0 {
			if v.rest.Diverged != nil {
				v.rest.Diverged(v.rest.given[0], v.pending())
			}
			return diverged("%d more answers were delivered there, and the code has ended", len(v.rest.given))
		}
		if v.result == nil {
			return agent.Errorf(agent.Failed, "the code ended without a value")
		}
		res.Output = *v.result
		return nil
	})
	res.Usage = usage
	return res, err
}

func (v *vm) isSuspended() bool { return v.rest != nil && v.rest.suspended != nil }

// inFlight lists the calls whose answers the code has not got, in the order in which it made them.
func (v *vm) inFlight() []request {
	list := slices.Clone(v.waiting)
	for _, c := range v.calls {
		list = append(list, c.request)
	}
	slices.SortFunc(list, func(a, b request) int { return cmp.Compare(a.number, b.number) })
	return list
}

// suspend takes the snapshot and lets the calls to the host go on without the cell.
func (v *vm) suspend() {
	v.clearScratch()
	if v.err != nil {
		return
	}
	memory, err := v.cell.Snapshot()
	if err != nil {
		v.fail(err)
		return
	}
	s := saved{
		loading: v.loading, awaited: uint32(v.awaited), issued: v.issued, exchanges: v.rest.exchanges, armed: v.armed,
		calls: v.inFlight(), memory: memory,
	}
	if v.armed {
		s.due = v.due.UnixNano()
	}
	suspended := &Suspension{Snapshot: s.encode(), Pending: v.pending()}
	if suspended.Image, err = v.cell.Image().Digest(); err == nil && v.rest.Export {
		suspended.Exported, err = exportImage(v.cell.Image(), v.h)
	}
	if err != nil {
		v.fail(err)
		return
	}
	if v.rest.unwatch != nil && !v.rest.unwatch() {
		v.fail(v.cell.Err()) // its time was up in between, and that of its calls
		return
	}
	v.rest.suspended = suspended
	close(v.rest.gone)
}

// clearScratch takes away what passed through last, so that a snapshot does not hold it.
func (v *vm) clearScratch() {
	b := v.read(v.h.scratch, scratchSize)
	for _, c := range b {
		if c != 0 {
			clear(b)
			return
		}
	}
}

// resume gives a restored cell what its driver knew.
func (v *vm) resume(s *saved) {
	v.loading, v.awaited, v.issued, v.rest.exchanges = s.loading, uint64(s.awaited), s.issued, s.exchanges
	for _, r := range s.calls {
		if !v.cell.Hold(int64(len(r.body))) {
			v.fail(agent.Exceeded(agent.LimitMemory, "the code's calls under way hold more than its limit of %d bytes", v.cell.Env().Limits.Memory))
			return
		}
		v.waiting = append(v.waiting, r)
	}
	if v.awaited != 0 && v.call("qjs_promise_state", v.awaited) != promisePending {
		v.warned = v.issued // in the life before
	}
	if s.armed {
		v.due = time.Unix(0, s.due)
		v.arm(v.due.Sub(v.cell.Env().Now()))
	}
	v.call("qjs_set_max_stack_size", guestStack)
}
