package api

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
)

// yieldLine is one piece of a call that is answered as it goes on: an item, or at last the result or the error.
type yieldLine struct {
	Item   json.RawMessage `json:"item,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *problem        `json:"error,omitempty"`
}

// yielded answers with what a method yields, as NDJSON or SSE. An error before the first item is the answer. A call ends when nobody reads it.
func (s *Server) yielded(ctx context.Context, call runtime.InstanceCall, form string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	q := &yieldQueue{sse: form == typeSSE, more: make(chan struct{}, 1)}
	call.Each = func(item json.RawMessage) error { return q.put(yieldLine{Item: item}) }
	s.sockets.Go(func() {
		_, err := guarded(func() (any, error) {
			res, err := s.rt.CallInstance(ctx, appOf(ctx), call)
			if err != nil {
				return nil, err
			}
			return nil, q.put(yieldLine{Result: res.Output.Body})
		})
		if err != nil && ctx.Err() == nil && agent.KindOf(err) == agent.Internal {
			s.o.Log.ErrorContext(ctx, "api: a call failed", "err", err)
		}
		q.end(err, requestOf(ctx).id)
	})
	first, err := q.next(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	beat := "\n"
	if q.sse {
		beat = ":\n\n"
	}
	return &stream{contentType: form, finish: true, first: first, beat: []byte(beat), next: q.next, close: cancel}, nil
}

// maxYielded is how many bytes may wait for a reader. The instance never waits for one.
const maxYielded = 4 << 20

// yieldQueue is what a call has yielded and nobody has read yet.
type yieldQueue struct {
	sse  bool
	more chan struct{} // of one place: there is something, or it is over

	mu   sync.Mutex
	buf  []byte
	told bool  // whether something was read
	over error // io.EOF after the last line
}

func (q *yieldQueue) put(line yieldLine) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.buf)+len(b) > maxYielded && len(q.buf) > 0 {
		return agent.Errorf(agent.Exhausted, "more than %d bytes that the call has yielded wait to be read", maxYielded)
	}
	q.append(b)
	return nil
}

// append is for who has the lock.
func (q *yieldQueue) append(line []byte) {
	if q.sse {
		q.buf = append(append(append(q.buf, "data: "...), line...), "\n\n"...)
	} else {
		q.buf = append(append(q.buf, line...), '\n')
	}
	q.poke()
}

func (q *yieldQueue) poke() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// end says that the call is over. An error is told by a line, unless it is the whole answer.
func (q *yieldQueue) end(err error, requestID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = io.EOF
	switch {
	case err == nil:
	case !q.told && len(q.buf) == 0:
		q.over = err
	default:
		p := problemOf(err, requestID)
		line, _ := json.Marshal(yieldLine{Error: &p})
		q.append(line)
	}
	q.poke()
}

func (q *yieldQueue) next(ctx context.Context) ([]byte, error) {
	for {
		q.mu.Lock()
		out, over := q.buf, q.over
		q.buf, q.told = nil, q.told || len(out) > 0
		q.mu.Unlock()
		switch {
		case len(out) > 0:
			return out, nil
		case over != nil:
			return nil, over
		}
		select {
		case <-q.more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
