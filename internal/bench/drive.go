//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// ask is one request, and what its answer must hold.
type ask struct {
	path, contentType string
	body              []byte
	want              string
}

// caller sends requests one after another on a connection of its own. Both sides are driven by it; it costs some 20 µs a
// request, so that little of what is measured is the client.
type caller struct {
	server *server
	conn   net.Conn
	r      *bufio.Reader
	buf    bytes.Buffer
}

func (s *server) dial() (*caller, error) {
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		return nil, err
	}
	return &caller{server: s, conn: conn, r: bufio.NewReader(conn)}, nil
}

// do returns the time from the request's first byte to the answer's last.
func (c *caller) do(a ask) (time.Duration, error) {
	c.write(a)
	start := time.Now()
	_, err := c.answer(a)
	return time.Since(start), err
}

// exchange returns the answer.
func (c *caller) exchange(a ask) ([]byte, error) {
	c.write(a)
	return c.answer(a)
}

// write makes a request, which answer sends.
func (c *caller) write(a ask) {
	c.buf.Reset()
	fmt.Fprintf(&c.buf, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n", a.path, c.server.addr, a.contentType, len(a.body))
	if c.server.token != "" {
		fmt.Fprintf(&c.buf, "Authorization: Bearer %s\r\n", c.server.token)
	}
	c.buf.WriteString("\r\n")
	c.buf.Write(a.body)
}

func (c *caller) answer(a ask) ([]byte, error) {
	if _, err := c.conn.Write(c.buf.Bytes()); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(a.want)) {
		return nil, fmt.Errorf("POST %s: %s: got %.300s, want %q", a.path, res.Status, body, a.want)
	}
	return body, nil
}

// load is what driving a server for a while has shown.
type load struct {
	took []float64 // seconds of each request
	rate float64   // requests per second
}

// drive sends n requests made by next with some callers at once, to a count of calls and not to a time.
func (s *server) drive(ctx context.Context, callers, n int, next func() ask) (load, error) {
	asks := make(chan ask, n)
	for range n {
		asks <- next()
	}
	close(asks)
	var mu sync.Mutex
	var out load
	var failed error
	var all sync.WaitGroup
	cs := make([]*caller, callers)
	for i := range cs {
		var err error
		if cs[i], err = s.dial(); err != nil {
			return out, err
		}
		defer cs[i].conn.Close()
	}
	start := time.Now()
	for _, c := range cs {
		all.Go(func() {
			var took []float64
			var err error
			for a := range asks {
				var d time.Duration
				if d, err = c.do(a); err != nil || ctx.Err() != nil {
					break
				}
				took = append(took, d.Seconds())
			}
			mu.Lock()
			defer mu.Unlock()
			out.took = append(out.took, took...)
			if err != nil {
				failed = err
			}
		})
	}
	all.Wait()
	if failed == nil {
		failed = ctx.Err()
	}
	out.rate = float64(len(out.took)) / time.Since(start).Seconds()
	return out, failed
}

// side is what one of two servers did over all rounds.
type side struct {
	server *server
	next   func() ask

	p50, least, rate []float64 // of each round
	all              []float64 // every sequential request
	seqCPU, seqN     float64
	manyCPU, manyN   float64
}

// plan says how much one round of a duel sends.
type plan struct{ rounds, sequential, callers, many int }

// duel drives two servers in turns: in each round first one, then the other, who begins changing. A nil server is left out.
func duel(ctx context.Context, p plan, sides ...*side) error {
	for _, s := range sides {
		if s.server != nil {
			if _, err := s.server.drive(ctx, 2, max(10, p.sequential/2), s.next); err != nil {
				return err
			}
		}
	}
	for round := range p.rounds {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			if s.server == nil {
				continue
			}
			if err := s.round(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *side) round(ctx context.Context, p plan) error {
	before, err := s.server.cpu()
	if err != nil {
		return err
	}
	seq, err := s.server.drive(ctx, 1, p.sequential, s.next)
	if err != nil {
		return err
	}
	between, err := s.server.cpu()
	if err != nil {
		return err
	}
	many, err := s.server.drive(ctx, p.callers, p.many, s.next)
	if err != nil {
		return err
	}
	after, err := s.server.cpu()
	if err != nil {
		return err
	}
	s.p50 = append(s.p50, median(seq.took))
	s.least = append(s.least, minimum(seq.took))
	s.rate = append(s.rate, many.rate)
	s.all = append(s.all, seq.took...)
	s.seqCPU += between - before
	s.seqN += float64(p.sequential)
	s.manyCPU += after - between
	s.manyN += float64(p.many)
	return nil
}

// costs says what one request cost the server, and the least that one took.
func (s *side) costs(name string) string {
	if s.server == nil {
		return name + " not here"
	}
	return fmt.Sprintf("%s min %s, CPU %s alone, %s with many callers", name, Seconds.format(minimum(s.least)),
		Seconds.format(s.seqCPU/s.seqN), Seconds.format(s.manyCPU/s.manyN))
}
