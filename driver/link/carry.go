package link

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// Driver is what carries out commands: a Link, or a box that has one.
type Driver interface {
	Do(ctx context.Context, name string, in, out any) error
	Stream() (*Stream, error)
}

// replyWait is how long the reply to a command may take whose stream has ended.
const replyWait = 5 * time.Second

// Carry has d carry out a command whose bytes flow beside it. args makes the command's body with the stream in it. use reads or writes the bytes; its
// connection is cut when it fails, and when ctx ends. What the driver says went wrong is the error, and that of use where the driver says nothing.
func Carry(ctx context.Context, d Driver, name string, args func(*driver.Stream) any, out any, use func(Conn) error) error {
	st, err := d.Stream()
	if err != nil {
		return err
	}
	defer st.Close()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := d.Do(within, name, args(st.Args()), out)
		if err != nil {
			cancel() // no stream will come
		}
		done <- err
	}()
	defer context.AfterFunc(within, func() { _ = st.Close() })()
	conn, err := st.Conn(within)
	if err == nil {
		err = use(conn)
	}
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, driver.ErrCut):
		defer time.AfterFunc(replyWait, cancel).Stop() // the reply says why the stream has ended early
	case err != nil:
		cancel()
	}
	switch told := <-done; {
	case err == nil || told != nil && agent.KindOf(told) != agent.Cancelled:
		return told
	case ctx.Err() != nil:
		return ended(ctx, name)
	}
	return err
}

// Send has the driver take bytes from body. An error of body is the error: what the driver says then is that it got half.
func Send(ctx context.Context, d Driver, name string, args func(*driver.Stream) any, body io.Reader, out any) error {
	from := &reader{Reader: body}
	err := Carry(ctx, d, name, args, out, func(conn Conn) error {
		_, err := io.Copy(conn, from)
		if err == nil {
			err = conn.CloseWrite()
		}
		if err != nil {
			_ = conn.Close() // what came is not whole, and is not to be kept
		}
		return from.failed() // else the driver took no more, and tells why
	})
	if broke := from.failed(); broke != nil {
		return broke
	}
	return err
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

func (r *reader) failed() error {
	if errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.err
}

// Receive has use read the bytes that a command of the driver sends.
func Receive(ctx context.Context, d Driver, name string, args func(*driver.Stream) any, out any, use func(io.Reader) error) error {
	return Carry(ctx, d, name, args, out, func(conn Conn) error { return use(received{conn}) })
}

// received says of an error of the connection what it is: whoever stores the bytes would take it for one of the disk.
type received struct{ io.Reader }

func (r received) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = agent.Wrap(agent.Unavailable, err, "the sandbox was cut off in the middle of what it sent")
	}
	return n, err
}
