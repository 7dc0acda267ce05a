package api

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/skep-dev/skep/agent"
)

// export streams what write writes as NDJSON. An error before the first byte is the answer; a later one cuts the stream short,
// which its reader notices.
func (s *Server) export(ctx context.Context, write func(context.Context, io.Writer) error) (*stream, error) {
	out := s.piped(ctx, "export", typeNDJSON, write)
	first, err := out.next(ctx)
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
	r, w := io.Pipe()
	s.sockets.Go(func() {
		_, err := guarded(func() (any, error) { return nil, write(ctx, w) })
		if err != nil && ctx.Err() == nil && agent.KindOf(err) == agent.Internal {
			s.o.Log.ErrorContext(ctx, "api: "+what+" failed", "err", err)
		}
		w.CloseWithError(err)
	})
	buf := make([]byte, 64<<10)
	return &stream{
		contentType: contentType, finish: true,
		next: func(context.Context) ([]byte, error) {
			n, err := io.ReadAtLeast(r, buf, 1)
			return buf[:n], err
		},
		close: func() { cancel(); r.Close() },
	}
}
