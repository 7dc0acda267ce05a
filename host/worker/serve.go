package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// Serve answers a pool on conn with a host of its own until conn or ctx ends. It closes conn, and returns nil when the
// pool closed it. The process is not confined; Main does that.
func Serve(ctx context.Context, conn io.ReadWriteCloser) error {
	return (&server{link: newLink(conn)}).serve(ctx)
}

// confinement is how a process gives up what it does not need. Its zero value gives up nothing.
type confinement struct {
	start func(hello) (notes []string, err error) // before any code is seen
	run   func() error                            // in a process that prepares, between compiling code and running it
}

// server is the worker's side of a connection.
type server struct {
	link    *link
	confine confinement
	probe   func(string) string // tests only
	ctx     context.Context     // of all calls
	role    role
	host    *host.Host
	sources singleflight.Group

	mu     sync.Mutex
	calls  map[uint64]context.CancelCauseFunc
	nudges map[uint64]chan struct{} // of calls that can be
	asks   map[uint64]chan *answerMessage
	loads  map[uint64]chan *sourceMessage
	next   uint64
	work   sync.WaitGroup
	writer sync.WaitGroup
}

func (s *server) serve(ctx context.Context) error {
	s.calls, s.nudges = map[uint64]context.CancelCauseFunc{}, map[uint64]chan struct{}{}
	s.asks = map[uint64]chan *answerMessage{}
	s.loads = map[uint64]chan *sourceMessage{}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.ctx = ctx
	defer context.AfterFunc(ctx, func() { s.link.fail(context.Cause(ctx)) })()
	s.writer.Go(s.link.write)
	err := s.link.read(s.handle)
	stop(err)
	s.work.Wait()
	s.writer.Wait()
	if s.host != nil {
		err = errors.Join(err, s.host.Close(context.WithoutCancel(ctx)))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *server) handle(f frame) error {
	if s.host == nil {
		return s.begin(f)
	}
	switch f.kind {
	case frameCall, frameFetch, frameEval, framePrepare, frameBundle:
		m, err := decodeCall(f.kind, f.body)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(s.ctx)
		s.mu.Lock()
		s.calls[f.id] = cancel
		if m.waiting.nudge {
			s.nudges[f.id] = make(chan struct{}, 1)
		}
		s.mu.Unlock()
		s.work.Go(func() { s.answer(ctx, f, m) })
		return nil
	case frameCancel:
		s.mu.Lock()
		defer s.mu.Unlock()
		if cancel := s.calls[f.id]; cancel != nil {
			cancel(agent.Errorf(agent.Cancelled, "the call was cancelled"))
		}
		return nil
	case frameNudge:
		s.mu.Lock()
		defer s.mu.Unlock()
		select {
		case s.nudges[f.id] <- struct{}{}:
		default: // it will be asked anyhow, or has ended
		}
		return nil
	case frameAnswer:
		m, err := decodeAnswer(f.body)
		if err != nil {
			return err
		}
		settle(s, s.asks, f.id, m)
		return nil
	case frameSource:
		m, err := decodeSource(f.body)
		if err != nil {
			return err
		}
		settle(s, s.loads, f.id, m)
		return nil
	case frameProbe:
		if s.probe != nil {
			s.work.Go(func() {
				res := resultMessage{output: agent.Text(s.probe(string(f.body)))}
				_ = s.link.send(s.ctx, frameResult, f.id, res.encode)
			})
			return nil
		}
	}
	return errNonsense
}

// begin makes the host and gives up what only that needed.
func (s *server) begin(f frame) error {
	var h hello
	if f.kind != frameHello || json.Unmarshal(f.body, &h) != nil {
		return errNonsense
	}
	s.role = h.Role
	o := h.host()
	o.Load = s.load
	if h.Role == roleWorker {
		o.Loaded = s.loaded
	}
	var r ready
	made, err := host.New(s.ctx, &o)
	if err == nil && s.confine.start != nil {
		r.Notes, err = s.confine.start(h)
	}
	if err != nil {
		if made != nil {
			err = errors.Join(err, made.Close(s.ctx))
		}
		r.Error = err.Error()
		_ = s.link.post(frameReady, 0, asJSON(r))
		return nil // the pool ends the connection
	}
	s.host = made
	return s.link.post(frameReady, 0, asJSON(r))
}

// answer does a call.
func (s *server) answer(ctx context.Context, f frame, m *callMessage) {
	var res resultMessage
	var err error
	c := m.call
	s.mu.Lock()
	nudge := s.nudges[f.id]
	s.mu.Unlock()
	s.remote(ctx, f.id, &c, &m.waiting, nudge)
	if m.calls {
		c.Calls = func(ctx context.Context, name string, in []byte) ([]byte, error) {
			return s.ask(ctx, f.id, &askMessage{number: host.Number(ctx), name: name, in: in})
		}
		c.Lines = s.lines(f.id)
	}
	switch f.kind {
	case frameCall:
		var r host.Result
		r, err = s.host.Call(ctx, c)
		res.output, res.usage, res.suspended = r.Output, r.Usage, r.Suspended
	case frameFetch:
		res.response, res.usage, err = s.host.Fetch(ctx, c, m.request)
	case frameEval:
		var r host.Result
		r, err = s.host.Eval(ctx, m.source, c)
		res.output, res.usage, res.suspended = r.Output, r.Usage, r.Suspended
	case frameBundle:
		var b host.Bundled
		if b, err = s.host.Bundle(ctx, host.Who{App: c.Tenant, Agent: c.Agent, Weight: c.Weight}, m.source); err == nil {
			res.output.Body, res.response.Body = b.JS, b.Map()
		}
	case framePrepare:
		res.prepared, err = s.prepare(ctx, f.id, m.source)
	}
	if res.err = agent.AsError(err); res.err != nil && res.err.Kind == agent.Internal {
		slog.Error("a call failed", "app", c.Tenant, "error", err) // the cause does not cross
	}
	if err := s.link.send(s.ctx, frameResult, f.id, res.encode); err != nil {
		res = resultMessage{usage: res.usage, err: agent.AsError(err)}
		_ = s.link.post(frameResult, f.id, res.encode)
	}
	s.forgetCall(f.id) // after the result: the host calls of one that was suspended go on, and are not to be dropped
}

func (s *server) forgetCall(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[id](nil)
	delete(s.calls, id)
	delete(s.nudges, id)
}

// prepare compiles code, gives up the right to write what is compiled, and runs its initialisers.
func (s *server) prepare(ctx context.Context, id uint64, src agent.Source) (host.Prepared, error) {
	if s.role != rolePrepare {
		return host.Prepared{}, fmt.Errorf("preparing code in a worker: %w", errNonsense)
	}
	tell := func(p host.Progress) {
		_ = s.link.post(frameProgress, id, func(e *encoder) { encodeProgress(e, p) })
	}
	if src.Kind == agent.Wasm {
		tell(host.Progress{Stage: "compile", Total: int64(len(src.Files[src.Main]))})
	}
	if err := s.host.Compile(ctx, src); err != nil {
		return host.Prepared{}, err
	}
	if s.confine.run != nil {
		if err := s.confine.run(); err != nil {
			return host.Prepared{}, err
		}
	}
	return s.host.Prepare(ctx, host.Who{}, src, tell)
}

// lineWindow is how many lines of console output may be on their way before one is waited for.
const lineWindow = 64

// lines sends a call's console output, for whose answer it waits only now and then.
func (s *server) lines(id uint64) host.Calls {
	n := 0
	return func(ctx context.Context, name string, in []byte) ([]byte, error) {
		if n++; n%lineWindow == 0 {
			return s.ask(ctx, id, &askMessage{name: name, in: in})
		}
		m := askMessage{name: name, in: in}
		return nil, s.link.send(ctx, frameLine, id, m.encode)
	}
}

// ask has a question answered by the pool.
func (s *server) ask(ctx context.Context, id uint64, m *askMessage) ([]byte, error) {
	n, answered := expect(s, s.asks)
	defer forget(s, s.asks, n)
	m.ask = n
	if err := s.link.send(ctx, frameAsk, id, m.encode); err != nil {
		return nil, err
	}
	select {
	case a := <-answered:
		if ctx.Err() != nil {
			return nil, agent.Wrap(agent.Cancelled, context.Cause(ctx), "the call to the host was given up")
		}
		return a.out, errorOf(a.err)
	case <-ctx.Done():
		_ = s.link.post(frameDrop, id, func(e *encoder) { e.uint(n) })
		return nil, agent.Wrap(agent.Cancelled, context.Cause(ctx), "the call to the host was given up")
	}
}

// loaded tells the pool what a loading has cost, before the call is answered that waited for it.
func (s *server) loaded(l host.Loaded) {
	m := loadedMessage{agent: l.Who.Agent, usage: l.Usage, err: agent.AsError(l.Err)}
	_ = s.link.post(frameLoaded, 0, m.encode)
}

// load has code sent by the pool, once for all calls that want the same.
func (s *server) load(ctx context.Context, d agent.Digest) (agent.Source, error) {
	loaded := s.sources.DoChan(string(d), func() (any, error) {
		n, answered := expect(s, s.loads)
		defer forget(s, s.loads, n)
		if err := s.link.send(s.ctx, frameLoad, n, func(e *encoder) { e.text(string(d)) }); err != nil {
			return agent.Source{}, err
		}
		select {
		case m := <-answered:
			return m.source, errorOf(m.err)
		case <-s.ctx.Done():
			return agent.Source{}, context.Cause(s.ctx)
		}
	})
	select {
	case r := <-loaded:
		return r.Val.(agent.Source), r.Err
	case <-ctx.Done():
		return agent.Source{}, agent.Wrap(agent.Cancelled, context.Cause(ctx), "cancelled while the code was being loaded")
	}
}

// expect makes a place for an answer.
func expect[T any](s *server, m map[uint64]chan T) (uint64, chan T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	ch := make(chan T, 1)
	m[s.next] = ch
	return s.next, ch
}

func settle[T any](s *server, m map[uint64]chan T, id uint64, answer T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := m[id]; ch != nil {
		ch <- answer
		delete(m, id)
	}
}

func forget[T any](s *server, m map[uint64]chan T, id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(m, id)
}

// Main is a worker process: it serves the connection that a Pool has left in file descriptor 3, confined.
func Main(ctx context.Context) error { return serveInherited(ctx, nil) }

func serveInherited(ctx context.Context, probe func(string) string) error {
	conn, err := inherited()
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "this is no place for a worker: skep serve starts them", Err: err}
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	c := &confiner{}
	s := &server{link: newLink(conn), confine: confinement{start: c.start, run: c.run}, probe: probe}
	return s.serve(ctx)
}
