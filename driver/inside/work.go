package inside

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// Bounds of what the driver does at once, and remembers.
const (
	maxWorks   = 256 // commands under way
	keptWorks  = 512 // commands that are answered, whose replies are kept
	keptAnswer = 8 << 20
)

// handler carries out a command.
type handler func(ctx context.Context, m *driver.Message) (any, error)

// on returns a handler that reads its arguments into a T.
func on[T any](f func(ctx context.Context, in *T) (any, error)) handler {
	return func(ctx context.Context, m *driver.Message) (any, error) {
		in := new(T)
		if err := m.Read(in); err != nil {
			return nil, err
		}
		return f(ctx, in)
	}
}

func (b *box) handlers() map[string]handler {
	return map[string]handler{
		driver.DoSetup:     on(b.doSetup),
		driver.DoRepo:      on(b.doRepo),
		driver.DoDiff:      on(b.doDiff),
		driver.DoPrompt:    on(b.turns.doPrompt),
		driver.DoAnswer:    on(b.turns.doAnswer),
		driver.DoInterrupt: on(b.turns.doInterrupt),
		driver.DoExec:      on(b.execs.doExec),
		driver.DoProcesses: on(b.doProcesses),
		driver.DoSignal:    on(b.execs.doSignal),
		driver.DoList:      on(b.doList),
		driver.DoRead:      on(b.doRead),
		driver.DoWrite:     on(b.doWrite),
		driver.DoDelete:    on(b.doDelete),
		driver.DoMakeDir:   on(b.doMakeDir),
		driver.DoArchive:   on(b.doArchive),
		driver.DoUnpack:    on(b.doUnpack),
		driver.DoPort:      on(b.doPort),
		driver.DoShutdown:  on(b.doShutdown),
	}
}

func (b *box) doShutdown(context.Context, *struct{}) (any, error) {
	b.shutdown()
	return nil, nil
}

// works are the commands that are under way or were answered. One that comes again, as it does after each connection that was lost before its reply had
// come, is answered again and not carried out again.
type works struct {
	b      *box
	ctx    context.Context // of all commands: they outlive connections
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	session *session // where replies go; nil while there is none
	known   map[uint64]*work
	done    []*work // oldest first
	bytes   int     // of their replies
	running int
	over    bool
}

type work struct {
	id    uint64
	reply []byte // nil while under way
}

func newWorks(b *box) *works {
	w := &works{b: b, known: map[uint64]*work{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// attach makes s the connection that replies go to.
func (w *works) attach(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = s
}

func (w *works) detach(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session == s {
		w.session = nil
	}
}

// end cancels all commands and waits for them.
func (w *works) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.cancel()
	w.wg.Wait()
}

// begin carries out a command, once.
func (w *works) begin(s *session, m *driver.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.known[m.ID]; k != nil {
		if k.reply != nil {
			s.push(k.reply)
		}
		return
	}
	if w.over || w.running >= maxWorks {
		err := agent.Errorf(agent.Exhausted, "the driver has %d commands under way, or ends", w.running)
		s.push(encodeReply(m.ID, nil, err))
		return
	}
	k := &work{id: m.ID}
	w.known[m.ID] = k
	w.running++
	w.wg.Go(func() {
		out, err := w.carryOut(m)
		w.answer(k, encodeReply(m.ID, out, err))
	})
}

// carryOut is the one place where a panic of a command is caught: the driver is all that holds the box together.
func (w *works) carryOut(m *driver.Message) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.b.log.Error("a command panicked", "command", m.Name, "panic", p, "stack", string(debug.Stack()))
			err = agent.Errorf(agent.Internal, "the driver failed at %s", m.Name)
		}
	}()
	h := w.b.handles[m.Name]
	if h == nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("the driver knows no command %q", m.Name), Hint: "delete the sandbox, so that the next one has the driver of this server"}
	}
	return h(withTrace(w.ctx, m.Trace), m)
}

func (w *works) answer(k *work, reply []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k.reply = reply
	w.running--
	w.done = append(w.done, k)
	w.bytes += len(reply)
	for len(w.done) > 1 && (len(w.done) > keptWorks || w.bytes > keptAnswer) {
		w.bytes -= len(w.done[0].reply)
		delete(w.known, w.done[0].id)
		w.done = w.done[1:]
	}
	if w.session != nil {
		w.session.push(reply)
	}
}

func encodeReply(id uint64, out any, err error) []byte {
	m := &driver.Message{Kind: driver.Reply, ID: id, Fault: driver.FaultOf(err)}
	if err == nil {
		m.Body = driver.Body(out)
	}
	b, err := driver.Encode(m)
	if err != nil {
		b, _ = driver.Encode(&driver.Message{Kind: driver.Reply, ID: id, Fault: driver.FaultOf(err)})
	}
	return b
}

type traceKey struct{}

func withTrace(ctx context.Context, trace string) context.Context {
	return context.WithValue(ctx, traceKey{}, trace)
}

func traceOf(ctx context.Context) string {
	t, _ := ctx.Value(traceKey{}).(string)
	return t
}
