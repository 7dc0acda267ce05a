package api

import (
	"context"
	"io"

	"github.com/skep-dev/skep/host"
)

// fetchTo waits for an agent's fetch handler to answer: with a whole response, or with a stream, which then is the result and
// goes on until the handler ends it or the client goes. A client that went shows when a piece cannot be written to it.
func (s *Server) fetchTo(ctx context.Context, agent string, req host.Request) (raw, error) {
	type answer struct {
		res  host.Response
		body io.Reader
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	begun, ended := make(chan answer, 1), make(chan answer, 1)
	go func() {
		var a answer
		_, a.err = guarded(func() (_ any, err error) {
			a.res, err = s.rt.FetchTo(ctx, appOf(ctx), agent, req, func(res host.Response, body io.Reader) { begun <- answer{res: res, body: body} })
			return nil, err
		})
		ended <- a
	}()
	select {
	case a := <-ended:
		defer cancel()
		select {
		case a = <-begun: // an empty stream: it may have come first
			return streamed(a.res, a.body, func() {})
		default:
			return rawOf(a.res, a.err)
		}
	case a := <-begun:
		return streamed(a.res, a.body, func() {
			cancel()
			<-ended
		})
	}
}

// streamed is a handler's response whose body comes from a reader. end is called when nobody wants more of it.
func streamed(res host.Response, body io.Reader, end func()) (raw, error) {
	out, err := rawOf(res, nil)
	if err != nil {
		end()
		return raw{}, err
	}
	pieces := readAhead(body)
	return raw{stream: &stream{
		status: out.status, contentType: out.contentType, header: append([][2]string{}, out.header...), finish: true,
		next: pieces.next,
		close: func() {
			end()
			pieces.drain()
		},
	}}, nil
}

// pieces are what a goroutine read of a body, one at a time: a reader cannot be left when its context ends, a channel can.
type pieces struct {
	read chan piece
	free chan []byte // buffers that may be filled again
	held []byte      // what next returned last
	err  error
}

type piece struct {
	buf []byte
	n   int
	err error
}

func readAhead(body io.Reader) *pieces {
	p := &pieces{read: make(chan piece), free: make(chan []byte, 2)}
	p.free <- make([]byte, 32<<10)
	p.free <- make([]byte, 32<<10)
	go func() {
		defer close(p.read)
		for buf := range p.free {
			n, err := body.Read(buf)
			p.read <- piece{buf, n, err}
			if err != nil {
				return
			}
		}
	}()
	return p
}

func (p *pieces) next(ctx context.Context) ([]byte, error) {
	if p.held != nil {
		p.free <- p.held
		p.held = nil
	}
	if p.err != nil {
		return nil, p.err
	}
	select {
	case got := <-p.read:
		p.held, p.err = got.buf, got.err
		if got.n == 0 && got.err != nil {
			return nil, got.err
		}
		return got.buf[:got.n], nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// drain waits for the goroutine, whose body has ended or is about to.
func (p *pieces) drain() {
	close(p.free)
	for range p.read {
	}
}
