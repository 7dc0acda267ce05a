package runtime

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/ws"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// methodWork is a call whose items, if it yields any, leave as they come: those of a script are frames to in.Connection.
func (r *Runtime) methodWork(rec record, in *abi.RPC) work {
	w := r.work(rec, agent.UseTurn, in.Method, agent.Payload{})
	w.socket = &socketWork{conn: in.Connection, call: in.ID}
	switch {
	case rec.plugin.Kind == agent.Script:
		w.function, w.input = abi.FunctionRPC, agent.JSON(encode(in))
	case len(in.Args) == 1:
		w.input = agent.JSON(in.Args[0])
	case len(in.Args) > 1:
		w.input = agent.JSON(encode(in.Args))
	}
	return w
}

// methodResult is what such a call returned, as JSON.
func methodResult(w work, res host.Result) (abi.Raw, error) {
	if w.function == abi.FunctionRPC {
		var done abi.RPCDone
		if err := json.Unmarshal(res.Output.Body, &done); err != nil {
			return nil, agent.Wrap(agent.Internal, err, "internal error")
		}
		return done.Done, nil
	}
	if out := res.Output; !out.IsJSON() || !json.Valid(out.Body) {
		return encode(string(out.Body)), nil
	}
	return abi.Raw(res.Output.Body), nil
}

// nobody is the connection of a call that came by none. No connection has this id.
const nobody = "call"

// callYielding calls a method whose items req.Each gets.
func (r *Runtime) callYielding(ctx context.Context, id instance.ID, made work, req InstanceCall) (host.Result, error) {
	if req.Once != "" {
		return host.Result{}, r.stats.failed(agent.Errorf(agent.Invalid, "what a call yields is not kept: a call whose items are read as they come has no idempotency key"))
	}
	w := made
	in := &abi.RPC{Method: req.Function, Connection: nobody, ID: nobody}
	switch body := req.Input.Body; {
	case made.rec.plugin.Kind != agent.Script: // nothing else yields
	case len(body) == 0:
	case req.Input.IsJSON() && json.Valid(body):
		in.Args = []abi.Raw{abi.Raw(body)}
	case req.Input.IsText():
		in.Args = []abi.Raw{encode(string(body))}
	default:
		return host.Result{}, r.stats.failed(agent.Errorf(agent.Invalid, "the input of a call whose items are read as they come is JSON or text"))
	}
	if made.rec.plugin.Kind == agent.Script {
		w = r.methodWork(made.rec, in)
		w.limits, w.depth, w.socket.each = made.limits, made.depth, req.Each
	}
	res, err := r.turn(ctx, id, w, "")
	if err != nil {
		return res, r.ended(ctx, w.rec.agent, err)
	}
	out, err := methodResult(w, res)
	res.Output = agent.JSON(out)
	return res, err
}

// yieldItem hands on an item of a call, after the commit of all that was before it.
func yieldItem(ctx context.Context, t *durable.Turn, f ws.Frame, each func(json.RawMessage) error) error {
	var item struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(f.Data, &item); err != nil {
		return agent.Wrap(agent.Internal, err, "an item cannot be read")
	}
	if err := t.Commit(ctx); err != nil {
		return err
	}
	return each(item.Result)
}
