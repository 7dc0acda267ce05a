package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/skep-dev/skep/agent"
)

// export streams what write writes as NDJSON. An error before the first byte is the answer; a later one cuts the stream short,
// which its reader notices.
func (s *Server) export(ctx context.Context, write func(context.Context, io.Writer) error) (*stream, error) {
	out := s.piped(ctx, "export", typeNDJSON, write)
	first, err := out.next(context.WithoutCancel(ctx)) // write ends with ctx, and says why
	if err != nil && !errors.Is(err, io.EOF) {
		out.close()
		return nil, err
	}
	out.first = bytes.Clone(first)
	return out, nil
}

// piped is a stream of what write writes on a goroutine of its own, whose context ends when nobody reads on.
func (s *Server) piped(ctx context.Context, what, contentType string, write func(context.Context, io.Writer) error) *stream {
	ctx, cancel := context.WithCancel(ctx)
	p := &pipe{pieces: make(chan []byte), taken: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{})}
	s.sockets.Go(func() {
		_, err := guarded(func() (any, error) { return nil, write(ctx, p) })
		if err != nil && ctx.Err() == nil && agent.KindOf(err) == agent.Internal {
			s.o.Log.ErrorContext(ctx, "api: "+what+" failed", "err", err)
		}
		p.err = cmp.Or(err, io.EOF)
		close(p.ended)
	})
	return &stream{contentType: contentType, finish: true, next: p.next, close: func() { cancel(); close(p.gone) }}
}

// pipe is an io.Pipe whose reader may stop waiting, and read on later. Nothing is copied: a write lasts until the reader comes back for more.
type pipe struct {
	pieces chan []byte
	taken  chan struct{}
	ended  chan struct{} // closed when nothing more is written
	err    error         // why that is: io.EOF when it was all
	gone   chan struct{} // closed when nothing more is read
	holds  bool          // the reader has a piece
}

func (p *pipe) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	select {
	case p.pieces <- b:
	case <-p.gone:
		return 0, io.ErrClosedPipe
	}
	select {
	case <-p.taken:
		return len(b), nil
	case <-p.gone:
		return 0, io.ErrClosedPipe
	}
}

// next is a stream's. It is not called once gone is closed.
func (p *pipe) next(ctx context.Context) (b []byte, err error) {
	if p.holds {
		p.taken <- struct{}{}
		p.holds = false
	}
	select {
	case b = <-p.pieces:
		p.holds = true
		return b, nil
	case <-p.ended:
		return nil, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
