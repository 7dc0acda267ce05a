package http_test

import (
	"context"
	"encoding/json"
	"io"
	nethttp "net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/grant/http"
)

func TestWhole(t *testing.T) {
	r := newRig(t, echo, &http.Options{Whole: 1 << 20})
	in, _ := json.Marshal(abi.HTTPRequest{Method: "POST", URL: r.url + "/", Header: [][2]string{{"x-a", "b"}}, Body: []byte("hi")})
	out, err := r.call(t.Context(), abi.CallHTTP, in)
	var res abi.HTTPResponse
	if err != nil || json.Unmarshal(out, &res) != nil || res.Status != 200 || string(res.Body) != "POST b hi" {
		t.Errorf("%s, %v", out, err)
	}
	for _, extra := range []int{0, 1} { // at the limit and past it
		in, _ := json.Marshal(abi.HTTPRequest{Method: "POST", URL: r.url + "/", Body: make([]byte, 1<<20-len("POST  ")+extra)})
		_, err := r.call(t.Context(), abi.CallHTTP, in)
		if extra == 0 && err != nil {
			t.Errorf("a body of the largest size: %v", err)
		}
		if extra == 1 {
			wants(t, "a body past it", err, agent.Exhausted, agent.LimitHTTP)
		}
	}
	r.Taken.Store(true)
	_, err = r.call(t.Context(), abi.CallHTTP, in)
	wants(t, "when the grant was taken back meanwhile", err, agent.Denied, agent.NoLimit)
}

// TestShort wants a short response in one call.
func TestShort(t *testing.T) {
	r := newRig(t, echo, nil)
	head, body, err := r.open(abi.HTTPOpen{Method: "PUT", URL: "/p", Header: [][2]string{{"x-a", "1"}}}, "body")
	if err != nil || body != "PUT 1 body" {
		t.Fatalf("%q, %v", body, err)
	}
	if d := cmp.Diff(abi.HTTPHead{ID: 1, Header: head.Header, Status: 200, StatusText: "OK", URL: r.url + "/p", End: true}, head); d != "" {
		t.Error(d)
	}
	_, _, err = r.read(head.ID)
	wants(t, "a read after the end", err, agent.NotFound, agent.NoLimit)
}

func TestLong(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 20<<10)
	r := newRig(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) { _, _ = io.WriteString(w, want) }, nil)
	head, got, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
	if err != nil || head.End {
		t.Fatalf("%+v, %v", head, err)
	}
	for last := false; !last; {
		var piece string
		if piece, last, err = r.read(head.ID); err != nil {
			t.Fatal(err)
		}
		if len(piece) > abi.MaxHTTPChunk {
			t.Errorf("a piece of %d bytes", len(piece))
		}
		got += piece
	}
	if got != want {
		t.Errorf("%d bytes came, of %d", len(got), len(want))
	}
}

// TestEvents has a server that sends when it was told that the piece before arrived.
func TestEvents(t *testing.T) {
	next := make(chan string)
	r := newRig(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		for {
			_ = nethttp.NewResponseController(w).Flush()
			select {
			case s, more := <-next:
				if !more {
					return
				}
				_, _ = io.WriteString(w, s)
			case <-r.Context().Done():
				return
			}
		}
	}, nil)
	head, body, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
	if err != nil || head.End || body != "" {
		t.Fatalf("%+v %q, %v", head, body, err)
	}
	for _, s := range []string{"one", "two"} {
		next <- s
		if got, last, err := r.read(head.ID); got != s || last || err != nil {
			t.Errorf("%q %v %v", got, last, err)
		}
	}
	close(next)
	if got, last, err := r.read(head.ID); got != "" || !last || err != nil {
		t.Errorf("the end: %q %v %v", got, last, err)
	}
}

func TestRequestInPieces(t *testing.T) {
	lengths := make(chan int64, 2)
	r := newRig(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		lengths <- r.ContentLength
		echo(w, r)
	}, nil)
	known := int64(6)
	for _, length := range []*int64{nil, &known} {
		head, body, err := r.open(abi.HTTPOpen{Method: "POST", URL: "/", Stream: true, Length: length}, "")
		if err != nil || head.Status != 0 || body != "" {
			t.Fatalf("%+v %q %v", head, body, err)
		}
		for i, piece := range []string{"one", "two"} {
			if err := r.write(head.ID, i == 1, piece); err != nil {
				t.Error(err)
			}
		}
		head, body, err = r.head(head.ID)
		if err != nil || !head.End || body != "POST  onetwo" {
			t.Errorf("%+v %q %v", head, body, err)
		}
		if got := <-lengths; length == nil && got != -1 || length != nil && got != known {
			t.Errorf("the server was told of %d bytes", got)
		}
	}
}

// TestAnswerBeforeTheBodyEnds has a server that answers at once: what is written after that fails, and the response is there.
func TestAnswerBeforeTheBodyEnds(t *testing.T) {
	r := newRig(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(413)
	}, nil)
	opened, _, err := r.open(abi.HTTPOpen{Method: "POST", URL: "/", Stream: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	head, _, err := r.head(opened.ID)
	if err != nil || head.Status != 413 {
		t.Errorf("%+v, %v", head, err)
	}
	for err == nil {
		err = r.write(opened.ID, false, strings.Repeat("x", 64<<10))
	}
	if k := agent.KindOf(err); k != agent.Unavailable && k != agent.NotFound {
		t.Errorf("the write: %v", err)
	}
}

func TestRedirects(t *testing.T) {
	r := newRig(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Path == "/from" {
			nethttp.Redirect(w, r, "/to", nethttp.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "here")
	}, nil)
	head, body, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/from", Redirect: "follow"}, "")
	if err != nil || !head.Redirected || head.URL != r.url+"/to" || body != "here" {
		t.Errorf("follow: %+v %q %v", head, body, err)
	}
	head, _, err = r.open(abi.HTTPOpen{Method: "GET", URL: "/from", Redirect: "manual"}, "")
	if err != nil || head.Status != 302 || head.Redirected || !slices.Contains(head.Header, [2]string{"location", "/to"}) {
		t.Errorf("manual: %+v %v", head, err)
	}
	_, _, err = r.open(abi.HTTPOpen{Method: "GET", URL: "/from", Redirect: "error"}, "")
	wants(t, "error", err, agent.Unavailable, agent.NoLimit)
}

func TestOpenRefuses(t *testing.T) {
	r := newRig(t, echo, nil)
	seven, below := int64(7), int64(-1)
	for name, in := range map[string]abi.HTTPOpen{
		"a redirect that is not one":  {Method: "GET", URL: "/", Redirect: "maybe"},
		"a body and more of it":       {Method: "GET", URL: "/", Stream: true},
		"a length of a whole body":    {Method: "GET", URL: "/", Length: &seven},
		"a length that cannot be one": {Method: "GET", URL: "/", Stream: true, Length: &below},
	} {
		body := "x"
		if in.Length != nil {
			body = ""
		}
		_, _, err := r.open(in, body)
		wants(t, name, err, agent.Invalid, agent.NoLimit)
	}
	for name, frame := range map[string]string{"": "", "short": "\x09\x00\x00\x00{}", "unknown field": "\x09\x00\x00\x00{\"stram\":1}"} {
		_, err := r.call(t.Context(), abi.CallHTTPOpen, []byte(frame))
		wants(t, name, err, agent.Invalid, agent.NoLimit)
	}
	for _, call := range []string{abi.CallHTTPWrite, abi.CallHTTPHead, abi.CallHTTPRead, abi.CallHTTPClose} {
		_, err := r.call(t.Context(), call, []byte("xx"))
		wants(t, call, err, agent.Invalid, agent.NoLimit)
		if call == abi.CallHTTPClose {
			continue
		}
		_, err = r.call(t.Context(), call, append(abi.AppendHTTPID(nil, 77), make([]byte, strings.Count(call, "write"))...))
		wants(t, call+" of nothing", err, agent.NotFound, agent.NoLimit)
	}
	r.close(77)
}

type scripted struct {
	do    func(context.Context, *egress.Request) (*egress.Response, error)
	still func() error
}

func (s scripted) Do(ctx context.Context, r *egress.Request) (*egress.Response, error) {
	return s.do(ctx, r)
}
func (s scripted) Still(context.Context) error {
	if s.still == nil {
		return nil
	}
	return s.still()
}

// TestBroken wants what came before a body broke off, and then the reason.
func TestBroken(t *testing.T) {
	r := newRig(t, echo, nil)
	r.use(scripted{do: func(context.Context, *egress.Request) (*egress.Response, error) {
		body := io.MultiReader(strings.NewReader("part"), iotest.ErrReader(agent.Exceeded(agent.LimitHTTP, "too much")))
		return &egress.Response{Status: 200, Body: io.NopCloser(body)}, nil
	}})
	head, body, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
	if err != nil || head.End || body != "part" {
		t.Fatalf("%+v %q %v", head, body, err)
	}
	_, _, err = r.read(head.ID)
	wants(t, "the read after it", err, agent.Exhausted, agent.LimitHTTP)
	_, _, err = r.read(head.ID)
	wants(t, "one more", err, agent.NotFound, agent.NoLimit)
}

// TestPanic wants a fault of a client to end its request, and nothing else.
func TestPanic(t *testing.T) {
	r := newRig(t, echo, nil)
	r.use(scripted{do: func(context.Context, *egress.Request) (*egress.Response, error) { panic("boom") }})
	_, _, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
	if e := agent.AsError(err); e == nil || e.Kind != agent.Internal || strings.Contains(e.Msg, "boom") {
		t.Errorf("%v", err)
	}
}

// Bodies that travel whole are gathered outside of the cell's memory, so all of them together are bounded, too.
func TestWholeBodiesTogether(t *testing.T) {
	more := make(chan struct{})
	r := newRig(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = w.Write(make([]byte, abi.MaxHTTPChunk))
		if r.URL.Path == "/slow" {
			w.(nethttp.Flusher).Flush()
			<-more
		}
	}, &http.Options{Held: abi.MaxHTTPChunk * 3 / 2})
	get := func(path string) error {
		in, err := json.Marshal(abi.HTTPRequest{Method: "GET", URL: r.url + path})
		if err != nil {
			return err
		}
		_, err = r.call(t.Context(), abi.CallHTTP, in)
		return err
	}
	done := make(chan error)
	for range 2 {
		go func() { done <- get("/slow") }()
	}
	wants(t, "the one that came second", <-done, agent.Exhausted, agent.LimitHTTP) // the first waits for more
	close(more)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := get("/"); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
