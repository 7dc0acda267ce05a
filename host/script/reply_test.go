package script

import (
	"context"
	"io"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/reply"
)

const streams = `
	import { callAgent, emit } from "skep";
	const bytes = (s) => new TextEncoder().encode(s);
	export default {
		async fetch(req, env, ctx) {
			switch (new URL(req.url).pathname) {
			case "/events": { // each is made when the one before was taken
				let n = 0;
				return new Response(new ReadableStream({ pull(c) { if (++n > 3) c.close(); else c.enqueue("data: " + n + "\n\n") } }, { highWaterMark: 0 }), { headers: { "content-type": "text/event-stream" } });
			}
			case "/proxy": return fetch(req.headers.get("x-url"));
			case "/fails": { let n = 0; return new Response(new ReadableStream({ pull(c) { if (n++) throw new RangeError("broken"); c.enqueue(bytes("x")) } }, { highWaterMark: 0 })) }
			case "/endless": return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(1000)) }, cancel() { emit("cancelled") } }));
			case "/teed": { const r = new Response(new ReadableStream()); const q = new Response(r.body); r.clone(); return q }
			case "/used": { const r = new Response(new ReadableStream()); r.body.getReader(); return r }
			}
		},
	}`

// streamed is what a caller saw of a response in pieces.
type streamed struct {
	head abi.HTTPReply
	body chan string // what each read brought
	err  chan error  // why the body ended
}

// stream fetches from a, with a caller who takes pieces, until it has most bytes.
func stream(t *testing.T, w *web, a *Agent, req Request, limits agent.Limits, most int) (*streamed, Response, error) {
	t.Helper()
	s := &streamed{body: make(chan string, 1000), err: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := reply.New(func(head abi.HTTPReply, body io.Reader) {
		s.head = head
		go func() {
			b := make([]byte, 1000)
			for total := 0; total < most; {
				n, err := body.Read(b)
				if err != nil {
					close(s.body)
					s.err <- err
					return
				}
				total += n
				s.body <- string(b[:n])
			}
			_ = body.(io.Closer).Close()
			close(s.body)
			s.err <- nil
		}()
	})
	d := grant.NewDoor(agent.DefaultLimits(), r.Handlers(), nil)
	calls, end := w.door()
	defer end()
	res, _, err := a.Fetch(ctx, Call{Limits: limits, Calls: func(ctx context.Context, name string, in []byte) ([]byte, error) {
		switch name {
		case abi.CallReply, abi.CallReplyWrite:
			return d.Call(ctx, name, in)
		case abi.CallEmit:
			w.gone <- "emitted"
			return nil, nil
		}
		return calls(ctx, name, in)
	}}, req)
	if !r.Close(err) {
		s = nil
	}
	return s, res, err
}

func (s *streamed) all() (pieces []string) {
	for p := range s.body {
		pieces = append(pieces, p)
	}
	return pieces
}

func TestReplyInPieces(t *testing.T) {
	w := newWeb(t)
	a := load(t, source(streams))
	s, res, err := stream(t, w, a, Request{Method: "GET", URL: "http://x/events"}, agent.Limits{}, 1<<20)
	if err != nil || res.Status != 200 || len(res.Body) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	got := s.all()
	if len(got) != 3 || got[2] != "data: 3\n\n" || s.head.Status != 200 || s.head.Header[0][1] != "text/event-stream" {
		t.Errorf("%+v: %q", s.head, got)
	}
	if err := <-s.err; err != io.EOF {
		t.Errorf("the body ended with %v", err)
	}

	s, _, err = stream(t, w, a, Request{Method: "GET", URL: "http://x/proxy", Header: [][2]string{{"x-url", w.url + "/long"}}}, agent.Limits{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, p := range s.all() {
		total += len(p)
	}
	if total != 148890 {
		t.Errorf("%d bytes came through the proxy", total)
	}

	s, _, err = stream(t, w, a, Request{Method: "GET", URL: "http://x/fails"}, agent.Limits{}, 1<<20)
	if e := agent.AsError(err); e == nil || e.Msg != "RangeError: broken" || len(s.all()) != 1 {
		t.Errorf("a stream that fails: %v", err)
	}
	if got := <-s.err; agent.AsError(got) != agent.AsError(err) {
		t.Errorf("the body ended with %v", got)
	}

	s, _, err = stream(t, w, a, Request{Method: "GET", URL: "http://x/endless"}, agent.Limits{}, 3000)
	if err != nil || len(s.all()) != 3 {
		t.Errorf("a caller that goes: %v", err)
	}
	if what := <-w.gone; what != "emitted" {
		t.Errorf("the stream was not cancelled: %s", what)
	}

	_, _, err = stream(t, w, a, Request{Method: "GET", URL: "http://x/endless"}, agent.Limits{Output: 5000}, 1<<20)
	if e := agent.AsError(err); e == nil || e.Limit != agent.LimitOutput {
		t.Errorf("past the limit: %v", err)
	}

	// A response without a stream, and one that cannot be read, take no pieces.
	s, _, err = stream(t, w, a, Request{Method: "GET", URL: "http://x/proxy", Header: [][2]string{{"x-url", w.url + "/json"}}}, agent.Limits{}, 1<<20)
	if s != nil || err != nil {
		t.Errorf("a short response: %+v, %v", s, err)
	}
	for _, path := range []string{"/used", "/teed"} {
		s, _, err = stream(t, w, a, Request{Method: "GET", URL: "http://x" + path}, agent.Limits{}, 1<<20)
		if s != nil || agent.KindOf(err) != agent.Failed {
			t.Errorf("a locked body, %s: %+v, %v", path, s, err)
		}
	}
}
