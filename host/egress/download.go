package egress

import (
	"errors"
	"io"
	"sync"

	"github.com/skep-dev/skep/agent"
)

// A body may grow to freely decoded bytes however few came, and beyond that to ratio bytes for each that came.
const (
	freely = 1 << 20
	ratio  = 256
)

// wire is the body as it comes in.
type wire struct {
	call *call
	body io.ReadCloser
	host string
	n    int64
	err  error // how it ended
}

func (w *wire) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.call.watch.await(waitBody, w.call.limits.Idle)
	n, err := w.body.Read(p)
	w.call.watch.idle()
	w.n += int64(n)
	if w.n > w.call.limits.ResponseBytes {
		n -= int(w.n - w.call.limits.ResponseBytes)
		err = w.call.bodyTooLarge(w.host)
	}
	w.err = err
	return n, err
}

// meter bounds what one decoder makes of what came in.
type meter struct {
	wire *wire
	r    io.Reader
	n    int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	switch most := m.wire.call.limits.ResponseBytes; {
	case m.n > most:
		return max(n-int(m.n-most), 0), m.wire.call.bodyTooLarge(m.wire.host)
	case m.n > freely+ratio*m.wire.n:
		return 0, agent.Exceeded(agent.LimitHTTP, "%s: the response's body grows to more than %d times its size when it is decoded", m.wire.host, ratio)
	}
	return n, err
}

// counted counts what is decoded.
type counted struct {
	call *call
	r    io.Reader
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.call.hop.count(0, n)
	return n, err
}

// download is the body of a response on its way in: decoded, bounded, and without secrets.
type download struct {
	call   *call
	wire   wire
	count  counted
	host   string
	coding string // for errors

	mu  sync.Mutex
	r   io.Reader
	err error
}

func (c *call) download(body io.ReadCloser, host string, codings []coding) io.ReadCloser {
	d := &download{call: c, host: host, wire: wire{call: c, body: body, host: host}}
	d.r = &d.wire
	for _, k := range codings {
		d.r = &meter{wire: &d.wire, r: &decoder{coding: k, from: d.r}}
		d.coding = k.String()
	}
	d.count = counted{c, d.r}
	d.r = &d.count
	if c.cleaner != nil {
		d.r = c.cleaner.Reader(d.r)
	}
	return d
}

func (d *download) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || len(p) == 0 {
		return 0, d.err
	}
	n, err := d.r.Read(p)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = d.explain(err)
			d.call.end(err)
		} else {
			d.call.end(nil)
		}
		d.err = err
		_ = d.wire.body.Close()
	}
	return n, err
}

// explain says why a body did not come to its end.
func (d *download) explain(err error) error {
	var e *agent.Error
	switch {
	case d.call.ctx.Err() != nil:
		return causeOf(d.call.ctx)
	case errors.As(err, &e):
		return e
	case d.wire.err != nil && !errors.Is(d.wire.err, io.EOF):
		return d.call.exchangeError(d.call.ctx, d.host, d.wire.err)
	case errors.Is(err, errWindow):
		return agent.Exceeded(agent.LimitHTTP, "%s: the response's body needs more than %d bytes to be decoded", d.host, maxWindow)
	}
	return unavailable(nil, d.host, "the response's body is not valid "+d.coding)
}

// Close ends the request, also while another goroutine reads.
func (d *download) Close() error {
	d.call.end(nil)
	return d.wire.body.Close()
}
