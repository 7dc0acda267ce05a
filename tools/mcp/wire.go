package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

// writeTimeout is how long a program may leave what it is sent unread.
const writeTimeout = 30 * time.Second

// wire is the connection with a program: messages of one line each (MCP, transport stdio). It is the SDK's Connection. Lines that are no messages are
// passed over, as many as bounds allow.
type wire struct {
	name   string // of the server
	in     *bufio.Reader
	stdout *os.File
	stdin  *os.File
	bounds Bounds
	clean  *scrub.Scrubber
	junk   func(line []byte) // is told of what is no message

	queue   []jsonrpc.Message
	garbage int64

	taps taps

	mu    sync.Mutex
	since time.Time // when the line that is being read began; zero between lines
	bad   error     // why the connection ended

	write sync.Mutex
	once  sync.Once
}

func newWire(name string, stdin, stdout *os.File, b Bounds, clean *scrub.Scrubber, junk func([]byte)) *wire {
	w := &wire{
		name: name, stdout: stdout, stdin: stdin, bounds: b, clean: clean, junk: junk,
	}
	w.in = bufio.NewReaderSize(stamped{w}, 64<<10)
	return w
}

// stamped reads standard output, and notes when a line was begun that has not ended.
type stamped struct{ w *wire }

func (s stamped) Read(p []byte) (int, error) {
	n, err := s.w.stdout.Read(p)
	if n > 0 {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		switch i := bytes.LastIndexByte(p[:n], '\n'); {
		case i == n-1:
			s.w.since = time.Time{}
		case i >= 0 || s.w.since.IsZero():
			s.w.since = time.Now()
		}
	}
	return n, err
}

func (w *wire) SessionID() string { return "" }

// Read is the SDK's, which calls it from one goroutine.
func (w *wire) Read(context.Context) (jsonrpc.Message, error) {
	for {
		if len(w.queue) > 0 {
			msg := w.queue[0]
			w.queue = w.queue[1:]
			w.taps.pass(msg)
			return msg, nil
		}
		line, err := w.line()
		if err != nil {
			return nil, w.fail(err)
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		msgs, err := decode(w.clean.Bytes(line))
		if err != nil {
			if w.garbage += int64(len(line)) + 1; w.garbage > w.bounds.Garbage {
				return nil, w.fail(agent.Errorf(agent.Unavailable,
					"server %s wrote more than %s on its standard output that is not MCP; its log belongs on its standard error", w.name, size(w.bounds.Garbage)))
			}
			w.junk(line)
			continue
		}
		w.garbage, w.queue = 0, msgs
	}
}

// line reads up to a line's end, holding no more than a message may have.
func (w *wire) line() ([]byte, error) {
	var line []byte
	for {
		part, err := w.in.ReadSlice('\n')
		if int64(len(line)+len(part)) > w.bounds.Message {
			return nil, w.tooLarge()
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if errors.Is(err, io.EOF) && len(bytes.TrimSpace(line)) > 0 {
				return line, nil
			}
			return nil, err
		}
	}
}

func (w *wire) tooLarge() error { return tooLarge(w.name, w.bounds.Message) }

func tooLarge(server string, most int64) error {
	return agent.Exceeded(agent.LimitOutput, "server %s sent a message of more than %s", server, size(most))
}

// stuck reports whether a line has been begun and not ended for longer than d.
func (w *wire) stuck(d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.since.IsZero() && time.Since(w.since) >= d
}

// fail keeps the first reason.
func (w *wire) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bad == nil {
		w.bad = err
	}
	return w.bad
}

// cause is why the connection ended, or nil.
func (w *wire) cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(w.bad, io.EOF) || errors.Is(w.bad, os.ErrClosed) {
		return nil
	}
	return w.bad
}

// decode reads a message, or a batch of them (JSON-RPC 2.0, section 6), which revisions before 2025-06-18 had.
func decode(line []byte) ([]jsonrpc.Message, error) {
	var raws []json.RawMessage
	if line[0] == '[' {
		if err := json.Unmarshal(line, &raws); err != nil {
			return nil, err
		}
	} else {
		raws = []json.RawMessage{line}
	}
	var msgs []jsonrpc.Message
	for _, raw := range raws {
		if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
			return nil, errors.New("not an object")
		}
		msg, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, msg)
	}
	return msgs, nil
}

// Write is the SDK's.
func (w *wire) Write(ctx context.Context, msg jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		w.taps.expect(ctx, req)
		deliveryOf(ctx).leave()
	}
	w.write.Lock()
	defer w.write.Unlock()
	_ = w.stdin.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := w.stdin.Write(append(data, '\n')); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) { // half a message may be on its way
			err = agent.Errorf(agent.Unavailable, "server %s has not read what it was sent for %s", w.name, writeTimeout)
		}
		err = w.fail(err)
		_ = w.Close()
		return err
	}
	return nil
}

// Close ends both directions, at which a program is to end itself.
func (w *wire) Close() error {
	w.once.Do(func() {
		w.fail(os.ErrClosed)
		_ = w.stdin.Close()
		_ = w.stdout.Close()
	})
	return nil
}

// size says a number of bytes.
func size(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
