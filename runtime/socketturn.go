package runtime

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant/shared"
	"github.com/skep-dev/skep/internal/ws"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/sockets"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

// socketHandler returns the function that handles an event of connections, and whether the code wants to know of it.
func socketHandler(p *agent.Plugin, handler, reserved string) (string, bool) {
	name, there := handlerOf(p, handler)
	if p.Kind == agent.Script {
		return reserved, there
	}
	return name, there
}

// open has the instance take the connection, in a turn: from the commit of that on the client is told what becomes of the instance.
func (k *Socket) open(ctx context.Context) {
	ctx, span := k.span(ctx, "connect")
	defer span.End()
	err := insist(ctx, func() error { return k.connect(ctx) })
	k.opened = err == nil
	if err == nil {
		return
	}
	k.r.sockets.Leave(k.conn)
	switch e := agent.AsError(err); e.Kind {
	case agent.Failed:
		k.conn.Close(refusal(e.Msg))
	case agent.Exhausted, agent.Unavailable, agent.Cancelled:
		k.conn.Close(ws.TryAgain, e.Msg)
	case agent.NotFound:
		k.conn.Close(closeDeleted, e.Msg)
	default:
		k.conn.Close(ws.Failed, e.Msg)
	}
}

// refusal is how a connection is closed whose onConnect has thrown: with the code from 4000 to 4999 that the message begins with, when
// it does.
func refusal(msg string) (code int, reason string) {
	msg = strings.TrimPrefix(msg, "Error: ")
	if len(msg) >= 4 {
		n, err := strconv.Atoi(msg[:4])
		rest := strings.TrimLeft(msg[4:], ": ")
		if err == nil && n >= 4000 && n <= 4999 && (len(msg) == 4 || len(rest) < len(msg)-4) {
			return n, rest
		}
	}
	return ws.Failed, msg
}

func (k *Socket) connect(ctx context.Context) error {
	rec, err := k.record(ctx)
	if err != nil {
		return err
	}
	function, there := socketHandler(rec.plugin, "onConnect", abi.FunctionConnect)
	initial := rec.plugin.Kind == agent.Script && slices.Contains(rec.plugin.Exports, "initialState")
	w := k.r.work(rec, agent.UseTurn, function, agent.Payload{})
	t, err := k.r.enter(ctx, k.id, durable.Entry{}, w.limits)
	if err != nil {
		return err
	}
	defer t.Abandon()
	state := k.r.sharingOf(t)
	now, err := state.get(ctx)
	if err != nil {
		return err
	}
	if err := k.r.sockets.Join(k.conn); err != nil {
		return err
	}
	t.Then(func() {
		now := state.latest()
		follows := now.Version > 0 && !k.req.Hello
		k.conn.Push(sockets.Identity(k.name, k.id.Key, follows))
		if !k.req.Hello {
			k.conn.Show(now)
		}
	})
	if !there && (!initial || now.Version > 0) {
		return k.r.leave(ctx, t)
	}
	s := k.conn.Socket()
	s.URL, s.Header = k.req.URL, k.req.Header
	k.req.Header = nil // nobody needs it any more
	w.input, w.socket = agent.JSON(encode(abi.SocketEvent{Socket: s})), &socketWork{conn: k.conn.ID}
	if _, err := k.r.inTurn(ctx, t, w); err != nil {
		return k.r.ended(ctx, rec.agent, err)
	}
	if there {
		if err := k.note(ctx, t, agent.EventConnected); err != nil {
			return err
		}
	}
	return k.r.leave(ctx, t)
}

func (k *Socket) note(ctx context.Context, t *durable.Turn, kind agent.EventKind) error {
	data := encode(map[string]string{"connection": k.conn.ID})
	if err := t.Append(ctx, instance.OwnLog(ownEvents), agent.Event{Kind: kind, Data: data}); err != nil {
		return err
	}
	k.r.trimEvents(ctx, t)
	return nil
}

// record finds the agent as it is now.
func (k *Socket) record(ctx context.Context) (record, error) {
	rec, err := k.r.records.resolve(ctx, k.r.store, k.app, k.req.Agent)
	if err == nil && rec.agent.ID != k.id.Agent {
		err = agent.Errorf(agent.NotFound, "agent %q is another one by now", k.req.Agent)
	}
	return rec, err
}

// turn tells the code of an event, in a turn of the instance.
func (k *Socket) turn(ctx context.Context, rec record, function string, ev abi.SocketEvent, note agent.Event) error {
	return insist(ctx, func() error {
		w := k.r.work(rec, agent.UseTurn, function, agent.JSON(encode(ev)))
		w.socket = &socketWork{conn: k.conn.ID}
		t, err := k.r.enter(ctx, k.id, durable.Entry{}, w.limits)
		if err != nil {
			return err
		}
		defer t.Abandon()
		if _, err := k.r.inTurn(ctx, t, w); err != nil {
			return k.r.ended(ctx, rec.agent, err)
		}
		if note.Kind != agent.UnknownEvent {
			if err := k.note(ctx, t, note.Kind); err != nil {
				return err
			}
		}
		return k.r.leave(ctx, t)
	})
}

// take deals with one message.
func (k *Socket) take(ctx context.Context, m ws.Message) {
	ctx, span := k.span(ctx, "message")
	defer span.End()
	rec, err := k.record(ctx)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		k.conn.Close(closeDeleted, sockets.Words(err))
		return
	}
	in, ours := sockets.Parse(m)
	switch {
	case err != nil:
	case !ours && len(m.Data) > sockets.MaxMessage:
		k.conn.Close(ws.TooBig, "a message may have 1 MiB")
	case !ours:
		if err = k.message(ctx, rec, m); err != nil && !isCodes(err) {
			k.conn.Close(ws.TryAgain, sockets.Words(err)) // rather than drop it silently
		}
	case in.Hello != nil:
		err = k.hello(ctx, in.Hello)
	case in.State != nil:
		k.setState(ctx, rec, in.State)
	case in.RPC != nil:
		k.call(ctx, rec, in.RPC)
	}
	if err != nil && k.conn.Patches() {
		k.conn.Push(sockets.Trouble(err))
	}
}

// isCodes reports whether an error is of the agent's own code, which was given the message then.
func isCodes(err error) bool {
	switch e := agent.AsError(err); e.Kind {
	case agent.Unavailable, agent.Internal, agent.Cancelled:
		return false
	case agent.Exhausted:
		return e.Limit != agent.LimitQuota && e.Limit != agent.LimitConcurrency
	default:
		return true
	}
}

func (k *Socket) message(ctx context.Context, rec record, m ws.Message) error {
	function, there := socketHandler(rec.plugin, "onSocketMessage", abi.FunctionMessage)
	if !there {
		return nil
	}
	ev := abi.SocketEvent{Socket: k.conn.Socket()}
	if m.Binary {
		ev.Base64 = m.Data
	} else {
		text := string(m.Data)
		ev.Text = &text
	}
	return k.turn(ctx, rec, function, ev, agent.Event{})
}

// hello brings a client up to date, and sends it patches and events from now on.
func (k *Socket) hello(ctx context.Context, h *sockets.Hello) error {
	var has int64
	var after *int64
	life, tail := int64(0), int64(0)
	err := insist(ctx, func() error {
		return k.r.withTurn(ctx, k.id, k.r.opts.Limits, func(ctx context.Context, t *durable.Turn) error {
			now, err := k.r.sharingOf(t).get(ctx)
			if err != nil {
				return err
			}
			born := t.Info().Created
			life = born.UnixMilli()
			if _, tail, err = k.r.store.Bounds(ctx, store.InstanceLog(k.id, ownEvents)); err != nil {
				return err
			}
			has, after = 0, nil
			if r := h.Resume; r != nil && r.Life == life { // else it has seen another instance of that key
				has, after = r.State, r.Events
			}
			t.Then(func() {
				k.conn.Push(sockets.Ready(born, now.Version, tail))
				k.conn.TakePatches(now, has)
			})
			return nil
		})
	})
	if err != nil || !h.Events || k.events != nil {
		return err
	}
	from := tail
	switch {
	case after != nil:
		from = *after
	case h.Resume != nil && h.Resume.Life != life && h.Resume.Life != 0:
		from = 0
	}
	sub, err := k.r.Subscribe(ctx, store.InstanceLog(k.id, ownEvents), from)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	k.events = cancel
	k.followers.Go(func() { k.follow(ctx, sub) })
	return nil
}

// follow passes on the events that the instance emits, as fast as the client reads.
func (k *Socket) follow(ctx context.Context, sub *Subscription) {
	defer sub.Close()
	for {
		frames, err := sub.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				k.conn.Close(ws.Failed, "the events cannot be read")
			}
			return
		}
		for _, f := range frames {
			if f.Event.Kind != agent.EventEmit {
				continue
			}
			if !k.conn.WaitRoom(ctx) {
				return
			}
			k.conn.Push(sockets.Event(f.JSON))
		}
	}
}

// setState changes the shared state as a client asks, if the code lets it.
func (k *Socket) setState(ctx context.Context, rec record, in *sockets.StateIn) {
	err := insist(ctx, func() error { return k.changeState(ctx, rec, in) })
	if e := agent.AsError(err); e != nil {
		_ = k.r.ended(ctx, rec.agent, err)
	}
}

func (k *Socket) changeState(ctx context.Context, rec record, in *sockets.StateIn) (err error) {
	w := k.r.work(rec, agent.UseTurn, abi.FunctionSetState, agent.Payload{})
	w.socket = &socketWork{conn: k.conn.ID, sets: true}
	t, err := k.r.enter(ctx, k.id, durable.Entry{}, w.limits)
	if err != nil {
		k.refuseState(in, abi.Shared{}, err)
		return err
	}
	defer t.Abandon()
	state := k.r.sharingOf(t)
	was, err := state.get(ctx)
	if err != nil {
		k.refuseState(in, was, err)
		return err
	}
	if err := k.changeIn(ctx, t, w, state, in, was); err != nil {
		k.refuseState(in, was, err) // before any other turn changes the state
		return err
	}
	t.Then(func() {
		if k.conn.Patches() {
			k.conn.Push(sockets.StateSet(in.ID, state.latest().Version))
		}
	})
	if err := k.r.leave(ctx, t); err != nil {
		k.refuseState(in, was, err)
		return err
	}
	return nil
}

func (k *Socket) changeIn(ctx context.Context, t *durable.Turn, w work, state *sharing, in *sockets.StateIn, was abi.Shared) error {
	next, err := shared.Compact(in.State)
	if err != nil {
		return err
	}
	if err := sharedConflict(in.Version, was.Version); err != nil {
		return err
	}
	exports := w.rec.plugin.Exports
	checks := w.rec.plugin.Kind == agent.Script && (slices.Contains(exports, "validateStateChange") || slices.Contains(exports, "onStateChanged"))
	if !checks {
		_, err := state.set(ctx, abi.SharedSet{State: next}, k.conn.ID)
		k.r.trimEvents(ctx, t)
		return err
	}
	w.input = agent.JSON(encode(abi.StateChange{State: next, Source: k.conn.ID, If: in.Version}))
	if _, err := k.r.inTurn(ctx, t, w); err != nil {
		return err
	}
	k.r.trimEvents(ctx, t)
	return nil
}

// refuseState tells a client that its change was not made and will not be, and shows it the state as it is.
func (k *Socket) refuseState(in *sockets.StateIn, now abi.Shared, err error) {
	if _, again := soon(err); again {
		return
	}
	if k.conn.Patches() {
		k.conn.Push(sockets.StateRefused(in.ID, now, err))
		return
	}
	k.conn.Push(sockets.StateError(err))
	if now.Version > 0 {
		k.conn.Push(sockets.State(now))
	}
}

// call calls a method for a client.
func (k *Socket) call(ctx context.Context, rec record, in *abi.RPC) {
	result, err := k.callMethod(ctx, rec, in)
	if err == nil && len(result) > sockets.MaxMessage {
		err = agent.Exceeded(agent.LimitOutput, "the result has %d bytes, more than the %d of a frame", len(result), sockets.MaxMessage)
	}
	if err != nil {
		k.conn.Push(sockets.Failure(in.ID, err))
		return
	}
	k.conn.Push(sockets.Result(in.ID, result))
}

func (k *Socket) callMethod(ctx context.Context, rec record, in *abi.RPC) (abi.Raw, error) {
	if isReserved(rec.plugin, in.Method) || !slices.Contains(rec.plugin.Exports, in.Method) {
		return nil, agent.Errorf(agent.NotFound, "there is no method %.80q", in.Method)
	}
	in.Connection = k.conn.ID
	w := k.r.methodWork(rec, in)
	res, err := k.r.turn(ctx, k.id, w, "")
	if err != nil {
		return nil, k.r.ended(ctx, rec.agent, err)
	}
	return methodResult(w, res)
}
