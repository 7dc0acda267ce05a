package api

import (
	"context"
	"errors"
	"io"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
)

// commanded is the part of a keeper.Box by which its driver is reached.
type commanded interface {
	Do(ctx context.Context, name string, in, out any) error
	Stream() (*link.Stream, error)
}

// carry has the driver carry out a command whose bytes flow beside it. args makes the command's body with the stream in it. use reads or writes the bytes; its
// connection is cut when it fails, and when ctx ends. What the driver says went wrong is the error, and that of use where the driver says nothing.
func carry(ctx context.Context, b commanded, name string, args func(*driver.Stream) any, out any, use func(link.Conn) error) error {
	st, err := b.Stream()
	if err != nil {
		return err
	}
	defer st.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := b.Do(ctx, name, args(st.Args()), out)
		if err != nil {
			cancel() // no stream will come
		}
		done <- err
	}()
	defer context.AfterFunc(ctx, func() { _ = st.Close() })()
	conn, err := st.Conn(ctx)
	if err == nil {
		err = use(conn)
	}
	if err != nil {
		cancel()
	}
	if told := <-done; err == nil || told != nil && agent.KindOf(told) != agent.Cancelled {
		return told
	}
	return err
}

// upload has the driver take bytes from body.
func upload(ctx context.Context, b commanded, name string, args func(*driver.Stream) any, body io.Reader, out any) error {
	return carry(ctx, b, name, args, out, func(conn link.Conn) error {
		from := &reader{Reader: body}
		_, err := io.Copy(conn, from)
		if err == nil {
			err = conn.CloseWrite()
		}
		if err == nil {
			return nil
		}
		_ = conn.Close() // what came is not whole, and is not to be kept
		if from.err == nil || errors.Is(from.err, io.EOF) {
			return nil // the driver took no more, and tells why
		}
		return from.err
	})
}

// reader remembers why its reading ended.
type reader struct {
	io.Reader
	err error
}

func (r *reader) Read(p []byte) (n int, err error) {
	n, err = r.Reader.Read(p)
	r.err = err
	return n, err
}

// receive writes the bytes that a command of the driver sends.
func receive(ctx context.Context, b commanded, name string, args func(*driver.Stream) any, w io.Writer, out any) error {
	return carry(ctx, b, name, args, out, func(conn link.Conn) error {
		_, err := io.Copy(w, conn)
		return err
	})
}
