package runtime

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/host/grant"
)

// Models is what answers for models.
type Models interface {
	Ask(ctx context.Context, who gateway.Caller, r *wire.Request, each func(wire.Event) error) (*wire.Answer, error)
	Models(ctx context.Context, who gateway.Caller) ([]gateway.ModelInfo, error)
}

const (
	maxStreams = 32       // that a cell has open at once
	maxPieces  = 64 << 10 // bytes of a stream that wait to be read; past that the model's provider is held back
)

// addModels gives a door the calls of models.
func (b *toolbox) addModels(handlers map[string]grant.Handler) {
	handlers[abi.CallModel] = grant.JSON(b.generate)
	handlers[abi.CallModelOpen] = grant.JSON(b.openModel)
	handlers[abi.CallModelRead] = grant.JSON(b.readModel)
	handlers[abi.CallModelClose] = grant.JSON(b.closeModel)
	handlers[abi.CallModelList] = grant.JSON(b.listModels)
}

// caller is on whose behalf a model is asked.
func (b *toolbox) caller() gateway.Caller {
	return gateway.Caller{App: b.job.App, Agent: b.job.Agent, Session: b.job.Session, Run: b.job.Run}
}

// ask counts the grant, and checks what the model is to be asked.
func (b *toolbox) ask(ctx context.Context, q abi.ModelAsk) (*wire.Request, error) {
	if b.r.opts.Models == nil {
		return nil, agent.Errorf(agent.Denied, "this server has no models")
	}
	q.Model = cmp.Or(q.Model, abi.DefaultModel)
	if err := b.auth.Model(ctx, q.Model); err != nil {
		return nil, err
	}
	return b.modelRequest(ctx, q)
}

func (b *toolbox) generate(ctx context.Context, q abi.ModelAsk) (abi.ModelAnswer, error) {
	r, err := b.ask(ctx, q)
	if err != nil {
		return abi.ModelAnswer{}, err
	}
	show := b.shown(ctx, q)
	if show == nil {
		a, err := b.r.opts.Models.Ask(ctx, b.caller(), r, nil)
		if err != nil {
			return abi.ModelAnswer{}, err
		}
		return modelAnswer(a), nil
	}
	a, err := b.r.opts.Models.Ask(ctx, b.caller(), r, show.event)
	if err := errors.Join(err, show.end(a, err)); err != nil {
		return abi.ModelAnswer{}, err
	}
	return modelAnswer(a), nil
}

func (b *toolbox) listModels(ctx context.Context, _ struct{}) (abi.Models, error) {
	if b.r.opts.Models == nil {
		return abi.Models{Models: []abi.ModelInfo{}}, nil
	}
	list, err := b.r.opts.Models.Models(ctx, b.caller())
	out := abi.Models{Models: []abi.ModelInfo{}}
	for _, m := range list {
		if b.auth.MayModel(m.ID) {
			info := abi.ModelInfo{Name: m.ID}
			if m.Title != m.ID {
				info.Description = m.Title
			}
			out.Models = append(out.Models, info)
		}
	}
	return out, err
}

// streamBit is set in the numbers of streams, and not in those of exchanges.
const streamBit = 1 << 31

// modelStreams are those that a cell has open. Their numbers begin anywhere, so that code which goes on in another process takes none for one of before.
type modelStreams struct {
	mu   sync.Mutex
	last uint32
	open map[uint32]*modelStream
}

// modelStream is an answer under way.
type modelStream struct {
	stop context.CancelCauseFunc
	more chan struct{} // something has changed for who reads
	room chan struct{} // something was read

	mu     sync.Mutex
	pieces []abi.ModelPiece
	bytes  int
	answer *abi.ModelAnswer
	err    error
	ended  bool
	names  map[int]wire.PartKind
}

var errClosed = errors.New("the stream was closed")

func (b *toolbox) openModel(ctx context.Context, q abi.ModelAsk) (abi.ModelStream, error) {
	r, err := b.ask(ctx, q)
	if err != nil {
		return abi.ModelStream{}, err
	}
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &modelStream{stop: stop, more: make(chan struct{}, 1), room: make(chan struct{}, 1), names: map[int]wire.PartKind{}}
	b.streams.mu.Lock()
	if len(b.streams.open) >= maxStreams {
		b.streams.mu.Unlock()
		stop(errClosed)
		return abi.ModelStream{}, agent.Exceeded(agent.LimitConcurrency, "the code has %d streams of models open, the most it may have", maxStreams)
	}
	if b.streams.open == nil {
		b.streams.open = map[uint32]*modelStream{}
		b.streams.last = rand.Uint32()
	}
	b.streams.last++
	id := b.streams.last | streamBit
	b.streams.open[id] = s
	b.streams.mu.Unlock()
	show := b.shown(life, q)
	go func() {
		a, err := b.r.opts.Models.Ask(life, b.caller(), r, func(e wire.Event) error {
			if show != nil {
				if err := show.event(e); err != nil {
					return err
				}
			}
			return s.put(life, e)
		})
		if show != nil {
			err = errors.Join(err, show.end(a, err))
		}
		s.end(a, err)
		stop(nil)
	}()
	return abi.ModelStream{ID: id}, nil
}

// put keeps an event for who reads, and waits while much is kept.
func (s *modelStream) put(ctx context.Context, e wire.Event) error {
	p, is := s.piece(e)
	if !is {
		return nil
	}
	for {
		s.mu.Lock()
		if s.bytes < maxPieces {
			s.pieces = append(s.pieces, p)
			s.bytes += len(p.Text) + 32
			s.mu.Unlock()
			signal(s.more)
			return nil
		}
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// piece returns what code is told of an event.
func (s *modelStream) piece(e wire.Event) (abi.ModelPiece, bool) {
	switch e.Kind {
	case wire.PartBegin:
		s.names[e.Index] = e.Part.Kind
		if e.Part.Kind != wire.CallPart || e.Part.Call == nil {
			return abi.ModelPiece{}, false
		}
		return abi.ModelPiece{Index: e.Index, Type: partName(e.Part.Kind), ID: e.Part.Call.ID, Name: e.Part.Call.Name}, true
	case wire.PartDelta:
		return abi.ModelPiece{Index: e.Index, Type: partName(s.names[e.Index]), Text: e.Text}, e.Text != ""
	}
	return abi.ModelPiece{}, false
}

func (s *modelStream) end(a *wire.Answer, err error) {
	s.mu.Lock()
	s.ended, s.err = true, err
	if err == nil {
		answer := modelAnswer(a)
		s.answer = &answer
	}
	s.mu.Unlock()
	signal(s.more)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (b *toolbox) readModel(ctx context.Context, q abi.ModelStream) (abi.ModelPieces, error) {
	b.streams.mu.Lock()
	s := b.streams.open[q.ID]
	b.streams.mu.Unlock()
	if s == nil {
		return abi.ModelPieces{}, agent.Errorf(agent.Unavailable, "the stream of a model is not open: it has ended, or the process that had it has")
	}
	for {
		s.mu.Lock()
		out := abi.ModelPieces{Pieces: s.pieces}
		ended, err, answer := s.ended, s.err, s.answer
		s.pieces, s.bytes = nil, 0
		s.mu.Unlock()
		signal(s.room)
		switch {
		case ended && err != nil && len(out.Pieces) == 0:
			b.forget(q.ID)
			return abi.ModelPieces{}, err
		case ended && err == nil:
			b.forget(q.ID)
			out.Answer = answer
			return out, nil
		case len(out.Pieces) > 0:
			return out, nil
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			return abi.ModelPieces{}, context.Cause(ctx)
		}
	}
}

func (b *toolbox) closeModel(_ context.Context, q abi.ModelStream) (grant.None, error) {
	b.forget(q.ID)
	return grant.None{}, nil
}

func (b *toolbox) forget(id uint32) {
	b.streams.mu.Lock()
	s := b.streams.open[id]
	delete(b.streams.open, id)
	b.streams.mu.Unlock()
	if s != nil {
		s.stop(errClosed)
	}
}

// close ends what the cell has open.
func (b *toolbox) close() {
	b.streams.mu.Lock()
	defer b.streams.mu.Unlock()
	for _, s := range b.streams.open {
		s.stop(errClosed)
	}
	b.streams.open = nil
}

// What is shown is gathered for a moment, so that an answer of a thousand pieces is no thousand events.
const (
	showAfter = 50 * time.Millisecond
	showBytes = 4 << 10
)

// showing writes what a model says into the log of the run's session, while it comes.
type showing struct {
	add     func(context.Context, agent.Event) error
	ctx     context.Context
	id      string
	attempt int

	mu     sync.Mutex
	began  bool
	kinds  map[int]wire.PartKind
	offset map[int]int64
	next   abi.MessageDelta // gathered
	has    bool             // next has something
	late   *time.Timer      // tells it, when nothing follows
	err    error
}

// shown returns nil when nothing is to be shown, or nobody could see it.
func (b *toolbox) shown(ctx context.Context, q abi.ModelAsk) *showing {
	if q.Show == "" || b.job.place == nil || b.job.place.run == nil {
		return nil
	}
	x := b.job.place.run
	x.mu.Lock()
	attempt := max(int(x.view.Lives), 1)
	x.mu.Unlock()
	return &showing{add: x.add, ctx: ctx, id: q.Show, attempt: attempt, kinds: map[int]wire.PartKind{}, offset: map[int]int64{}}
}

func (s *showing) event(e wire.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case wire.Begin:
		s.begin(e.Model)
	case wire.PartBegin:
		s.kinds[e.Index] = e.Part.Kind
		if e.Part.Kind == wire.CallPart && e.Part.Call != nil {
			s.gather(abi.MessageDelta{Index: e.Index, Name: e.Part.Call.Name, Call: e.Part.Call.ID})
		}
	case wire.PartDelta:
		s.gather(abi.MessageDelta{Index: e.Index, Text: e.Text})
	}
	return s.err
}

// tell adds an event. The caller holds mu, as do those of the next three.
func (s *showing) tell(kind agent.EventKind, data any) {
	if s.err == nil {
		s.err = s.add(s.ctx, agent.Event{Kind: kind, Data: encode(data)})
	}
}

func (s *showing) begin(model string) {
	if !s.began {
		s.began = true
		s.tell(agent.EventMessageStarted, abi.MessageStarted{ID: s.id, Attempt: s.attempt, Model: model})
	}
}

// gather puts a piece to those of the same part that were not told yet.
func (s *showing) gather(d abi.MessageDelta) {
	s.begin("")
	if s.has && (s.next.Index != d.Index || d.Name != "" || len(s.next.Text)+len(d.Text) > showBytes) {
		s.flush()
	}
	if !s.has {
		s.has = true
		s.next = abi.MessageDelta{
			ID: s.id, Attempt: s.attempt, Index: d.Index, Type: partName(s.kinds[d.Index]), Offset: s.offset[d.Index], Name: d.Name, Call: d.Call,
		}
		s.late = time.AfterFunc(showAfter, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.flush()
		})
	}
	s.next.Text += d.Text
	s.offset[d.Index] += int64(len(d.Text))
}

func (s *showing) flush() {
	if s.has {
		s.has = false
		s.late.Stop()
		s.tell(agent.EventMessageDelta, s.next)
	}
}

// end tells how the answer ended. Where the call was given up, as by a process that stops, nobody knows how it would have: it is made again, or the
// run's end tells.
func (s *showing) end(a *wire.Answer, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.ctx.Err() != nil {
		s.flush()
		return s.err
	}
	done := abi.MessageDone{ID: s.id, Attempt: s.attempt}
	if err != nil {
		done.Error = agent.AsError(err).Msg
	} else {
		use := modelUsage(a.Usage.Tokens)
		done.Model, done.Stop, done.Usage = a.Model, stopName(a.Stop), &use
	}
	s.begin("")
	s.flush()
	s.tell(agent.EventMessageDone, done)
	return s.err
}
