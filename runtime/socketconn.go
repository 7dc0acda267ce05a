package runtime

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/ws"
	"github.com/skep-dev/skep/runtime/sockets"
	"github.com/skep-dev/skep/store/instance"
)

const (
	closeDeleted = 4404 // the instance or its agent is gone: connecting again makes another

	inboxMessages = 64      // of one client that may wait for turns; then no more is read
	inboxBytes    = 2 << 20 // the same in bytes; one message always may
)

// MaxSocketFrame is the most bytes of a client's frame: those of a message, and what is around a shared state.
const MaxSocketFrame = sockets.MaxMessage + 1<<10

// SocketRequest asks for a connection with an instance, which is made when it is not there.
type SocketRequest struct {
	Agent, Key string
	URL        string        // that code is told of; credentials are not in it
	Header     [][2]string   // the same
	Token      agent.TokenID // by which it is opened
	Hello      bool          // nothing of the state is sent before the client has said hello
}

// Socket is a connection of a client with an instance. While neither has anything to say it holds its network connection and a
// goroutine: no cell, no turn and no buffer.
type Socket struct {
	r    *Runtime
	app  agent.App
	req  SocketRequest
	id   instance.ID
	name string
	conn *sockets.Conn
	from trace.SpanContext // of the request that has opened it

	mu      sync.Mutex
	inbox   []ws.Message
	bytes   int
	working bool
	opened  bool          // the instance has taken it
	room    chan struct{} // closed when the inbox takes more
	workers sync.WaitGroup

	events    context.CancelFunc // of a client that asked for events
	followers sync.WaitGroup
}

// OpenSocket checks that there may be such a connection, before it is made.
func (r *Runtime) OpenSocket(ctx context.Context, app agent.App, req SocketRequest) (*Socket, error) {
	id, rec, err := r.instanceOf(ctx, app, req.Agent, req.Key)
	if err != nil {
		return nil, err
	}
	return &Socket{r: r, app: app, req: req, id: id, name: rec.agent.Name, from: trace.SpanContextFromContext(ctx)}, r.sockets.Room(id)
}

// span begins the span of something that happens on the connection. As a connection may last for days it is of a trace of its own, and
// links to the request that has opened the connection.
func (k *Socket) span(ctx context.Context, name string) (context.Context, trace.Span) {
	if !k.from.IsValid() {
		return k.r.opts.Tracer.Start(ctx, name)
	}
	return k.r.opts.Tracer.Start(ctx, name, trace.WithLinks(trace.Link{SpanContext: k.from}))
}

// Serve serves the connection until it has ended. When soft ends it is closed with code 1001, and code is told nothing of that: it is
// told of connections that begin. Turns that are under way then may go on until hard ends.
func (k *Socket) Serve(soft, hard context.Context, wire func(control func(ws.Frame)) *ws.Conn) {
	var c *sockets.Conn
	w := wire(func(f ws.Frame) { c.Push(f) })
	c = k.r.sockets.Conn(k.id, w, k.req.Token)
	k.conn = c
	stop := context.AfterFunc(soft, func() { c.Close(ws.GoingAway, "the server stops") })
	k.work(hard) // the first is the connection itself
	end := k.read(hard, w)
	stop()
	c.Close(end.Code, end.Reason)
	c.Wait()
	_ = w.Finish()
	k.finish(hard, soft.Err() == nil, end)
}

// read reads until the connection ends, and returns how.
func (k *Socket) read(ctx context.Context, w *ws.Conn) *ws.CloseError {
	for {
		m, err := w.Read()
		if err != nil {
			if by := k.conn.Closing(); by != nil {
				return by
			}
			if e, ok := errors.AsType[*ws.CloseError](err); ok {
				return e
			}
			return &ws.CloseError{Code: ws.Abnormal}
		}
		if pong, ok := sockets.Pong(m); ok {
			k.conn.Push(pong)
			continue
		}
		if k.conn.Closing() == nil {
			k.add(ctx, m)
		}
	}
}

// add gives a message to the worker, and waits while it has many.
func (k *Socket) add(ctx context.Context, m ws.Message) {
	for {
		k.mu.Lock()
		if len(k.inbox) == 0 || len(k.inbox) < inboxMessages && k.bytes+len(m.Data) <= inboxBytes {
			break
		}
		if k.room == nil {
			k.room = make(chan struct{})
		}
		room := k.room
		k.mu.Unlock()
		<-room
	}
	k.inbox = append(k.inbox, m)
	k.bytes += len(m.Data)
	k.mu.Unlock()
	k.work(ctx)
}

// work makes sure that there is a worker. It is there only while there is something to do.
func (k *Socket) work(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.working {
		k.working = true
		k.workers.Go(func() { k.workAll(ctx) })
	}
}

// workAll deals with what came, in its order.
func (k *Socket) workAll(ctx context.Context) {
	if !k.opened {
		k.open(ctx)
	}
	for {
		k.mu.Lock()
		if k.room != nil {
			close(k.room)
			k.room = nil
		}
		if len(k.inbox) == 0 {
			k.inbox, k.working = nil, false
			k.mu.Unlock()
			return
		}
		m := k.inbox[0]
		k.inbox[0] = ws.Message{}
		k.inbox = k.inbox[1:]
		k.bytes -= len(m.Data)
		k.mu.Unlock()
		if k.opened && ctx.Err() == nil {
			k.take(ctx, m)
		}
	}
}

// finish waits for the worker, and tells the code that the connection has ended.
func (k *Socket) finish(ctx context.Context, tell bool, end *ws.CloseError) {
	k.workers.Wait()
	if k.events != nil {
		k.events()
	}
	k.followers.Wait()
	k.r.sockets.Leave(k.conn)
	if !k.opened || !tell {
		return
	}
	rec, err := k.r.records.resolve(ctx, k.r.store, k.app, k.req.Agent)
	if err != nil || rec.agent.ID != k.id.Agent {
		return // it is gone
	}
	function, there := socketHandler(rec.plugin, "onClose", abi.FunctionClose)
	if !there || end.Code == closeDeleted && end.Ours {
		return
	}
	ctx, span := k.span(ctx, "disconnect")
	defer span.End()
	ev := abi.SocketEvent{Socket: k.conn.Socket(), Code: end.Code, Reason: end.Reason}
	_ = k.turn(ctx, rec, function, ev, agent.Event{Kind: agent.EventDisconnected}) // what the code did not catch is in its log
}

// How long a client waits whose message found the instance's line full, and at most when a rate is used up.
const (
	retryTurn = 100 * time.Millisecond
	retryRate = 5 * time.Second
)

// insist repeats what could not even wait in the instance's line, or was too much for this second: its client waits meanwhile, and sends
// no more.
func insist(ctx context.Context, do func() error) error {
	for {
		err := do()
		wait, again := soon(err)
		if !again || ctx.Err() != nil {
			return err
		}
		pause(ctx, wait)
	}
}

// soon tells whether something is worth doing again soon, and when.
func soon(err error) (time.Duration, bool) {
	e := agent.AsError(err)
	switch {
	case e == nil:
		return 0, false
	case e.Limit == agent.LimitConcurrency:
		return retryTurn, true
	}
	return e.After, e.Limit == agent.LimitQuota && e.After > 0 && e.After <= retryRate
}
