package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// messageKind says what a message between instances is for.
type messageKind string

const (
	messageSend  messageKind = "send"  // call a method; nobody waits for what it returns
	messageCall  messageKind = "call"  // call a method for a run, which waits for the reply
	messageReply messageKind = "reply" // what a call came to
	messageStart messageKind = "start" // begin a run for a run
	messageEnded messageKind = "ended" // what a run came to that a run has begun
)

// message is what instances send each other. Payloads that are larger than a message are blobs.
type message struct {
	Kind     messageKind     `json:"kind"`
	Function string          `json:"function,omitempty"`
	Type     string          `json:"type,omitempty"` // media type of Body
	Body     []byte          `json:"body,omitempty"` // input or output
	Blob     agent.Digest    `json:"blob,omitempty"` // in place of Body
	Run      agent.RunID     `json:"run,omitempty"`  // of the run that waits
	Call     uint64          `json:"call,omitempty"` // its call
	Of       agent.RunID     `json:"of,omitempty"`   // the run that was begun
	Error    *agent.RunError `json:"error,omitempty"`
	Depth    int             `json:"depth,omitempty"`
	Code     agent.Digest    `json:"code,omitempty"`  // of a script, which is run in place of Function
	Tools    []string        `json:"tools,omitzero"`  // that it has; nil means all
	Trace    string          `json:"trace,omitempty"` // traceparent of whoever sends it
}

// maxMessageBody is the most of a payload that a message carries itself.
const maxMessageBody = 64 << 10

// maxOutbox is how many messages of one instance may be on their way.
const maxOutbox = 10_000

// send has a method called that nobody waits for.
func (r *Runtime) send(ctx context.Context, t *durable.Turn, to instance.ID, function string, in agent.Payload) error {
	if n := t.Info().Outbox; n >= maxOutbox {
		return &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitState, After: time.Second, Msg: fmt.Sprintf("%d messages of the instance are on their way already", n),
			Hint: "send again when some have arrived",
		}
	}
	return r.post(ctx, t, to, message{Kind: messageSend, Function: function, Type: in.Type, Body: in.Body})
}

// post puts a message in a turn's outbox.
func (r *Runtime) post(ctx context.Context, t *durable.Turn, to instance.ID, m message) error {
	if trace.SpanContextFromContext(ctx).IsValid() {
		m.Trace = telemetry.Traceparent(ctx)
	}
	if len(m.Body) > maxMessageBody {
		d, err := r.store.PutBlob(ctx, m.Body)
		if err != nil {
			return err
		}
		m.Body, m.Blob = nil, d
	}
	return t.Send(ctx, instance.Send{To: to, Data: encode(m)})
}

func (r *Runtime) readMessage(ctx context.Context, in instance.Message) (m message, err error) {
	if err = json.Unmarshal(in.Data, &m); err != nil {
		return m, agent.Wrap(agent.Internal, err, "a message cannot be read")
	}
	if m.Blob != "" {
		m.Body, err = r.store.Blob(ctx, m.Blob)
	}
	return m, err
}

// receive does what a message is for, in the turn of its receiver.
func (r *Runtime) receive(ctx context.Context, t *durable.Turn, in instance.Message) error {
	m, err := r.readMessage(ctx, in)
	if err != nil {
		return err
	}
	switch m.Kind {
	case messageSend, messageCall:
		return r.receiveCall(ctx, t, in.From, m)
	}
	return r.receiveForRun(ctx, t, in.From, m)
}

// receiveCall calls the method that a message names. If it fails, what it changed is undone and whoever waits is told; the message has
// taken effect all the same, once.
func (r *Runtime) receiveCall(ctx context.Context, t *durable.Turn, from instance.ID, m message) error {
	rec, err := r.agentOf(ctx, t.ID())
	if err != nil {
		return err
	}
	w := r.work(rec, agent.UseTurn, m.Function, agent.Payload{Type: m.Type, Body: m.Body})
	w.depth = m.Depth
	ctx = telemetry.WithTraceparent(ctx, m.Trace)
	reply := message{Kind: messageReply, Run: m.Run, Call: m.Call}
	if isReserved(rec.plugin, m.Function) {
		err = agent.Errorf(agent.NotFound, "there is no method %.80q that can be called", m.Function)
	} else {
		res, failed := r.inTurn(ctx, t, w)
		reply.Type, reply.Body, err = res.Output.Type, res.Output.Body, r.ended(ctx, rec.agent, failed)
	}
	if err != nil {
		// A run that waits is told of a quota, as other callers are.
		if ctx.Err() != nil || blameless(err) && (m.Kind == messageSend || agent.AsError(err).Limit != agent.LimitQuota) {
			return err // it comes again
		}
		t.Undo()
		reply.Type, reply.Body, reply.Error = "", nil, agent.ErrorOf(err)
	}
	if m.Kind == messageSend {
		return nil
	}
	return r.post(ctx, t, from, reply)
}

// blameless reports whether an error is not the code's fault, so that what it ended is to be done again.
func blameless(err error) bool {
	e := agent.AsError(err)
	return e.Kind == agent.Unavailable || e.Kind == agent.Internal || e.Limit == agent.LimitQuota || e.Limit == agent.LimitConcurrency
}

// refusedMessage tells a run that waits for the answer to a message whose receiver is gone.
func (r *Runtime) refusedMessage(ctx context.Context, t *durable.Turn, in instance.Message, why error) error {
	m, err := r.readMessage(ctx, in)
	if err != nil || m.Kind != messageCall && m.Kind != messageStart {
		return err
	}
	return r.receiveForRun(ctx, t, in.To, message{Kind: messageReply, Run: m.Run, Call: m.Call, Error: agent.ErrorOf(why)})
}
