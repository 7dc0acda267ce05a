package http_test

import (
	"context"
	"io"
	nethttp "net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/grant/http"
)

// silent is a server that begins to answer and then waits for its client to go. It tells of both.
func silent(begun, gone chan<- struct{}) nethttp.HandlerFunc {
	return func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Path != "/mute" {
			_, _ = io.WriteString(w, "begin")
			_ = nethttp.NewResponseController(w).Flush()
		}
		begun <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}
}

func TestEnds(t *testing.T) {
	for name, end := range map[string]func(r *rig, id uint32){
		"close": func(r *rig, id uint32) { r.close(id) },
		"the end of the cell": func(r *rig, id uint32) {
			r.Table.Close()
			_, _, err := r.read(id)
			wants(r.t, "a read after it", err, agent.Cancelled, agent.NoLimit)
			_, _, err = r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
			wants(r.t, "a request after it", err, agent.Cancelled, agent.NoLimit)
		},
		"a grant that is taken back": func(r *rig, id uint32) {
			r.Taken.Store(true)
			_, _, err := r.read(id)
			for err == nil { // what came before may be taken
				_, _, err = r.read(id)
			}
			wants(r.t, "the read", err, agent.Denied, agent.NoLimit)
		},
		"a read that is given up": func(r *rig, id uint32) {
			ctx, cancel := context.WithCancel(r.t.Context())
			cancel()
			_, err := r.call(ctx, abi.CallHTTPRead, abi.AppendHTTPID(nil, id))
			wants(r.t, "the read", err, agent.Cancelled, agent.NoLimit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun, gone := make(chan struct{}, 1), make(chan struct{}, 1)
			r := newRig(t, silent(begun, gone), nil)
			head, body, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
			if err != nil || body != "begin" || head.End {
				t.Fatalf("%+v %q %v", head, body, err)
			}
			end(r, head.ID)
			<-gone
		})
	}
}

// TestGivenUpBeforeTheHead has the call go away while the server is silent, and the cell.
func TestGivenUpBeforeTheHead(t *testing.T) {
	for _, name := range []string{"call", "cell"} {
		begun, gone := make(chan struct{}, 1), make(chan struct{}, 1)
		r := newRig(t, silent(begun, gone), nil)
		ctx, cancel := context.WithCancel(t.Context())
		frame, err := abi.AppendHTTPHead(nil, abi.HTTPOpen{Method: "GET", URL: r.url + "/mute"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := r.call(ctx, abi.CallHTTPOpen, frame)
			ended <- err
		}()
		<-begun
		if name == "call" {
			cancel()
		} else {
			r.Table.Close()
		}
		if err := <-ended; err == nil {
			t.Errorf("%s: no error", name)
		}
		<-gone
		cancel()
	}
}

// TestWriteTakenBack wants the next piece of a request refused when the grant was taken back, and the request cut.
func TestWriteTakenBack(t *testing.T) {
	read := make(chan error, 1)
	r := newRig(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	}, nil)
	head, _, err := r.open(abi.HTTPOpen{Method: "POST", URL: "/", Stream: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.write(head.ID, false, "one"); err != nil {
		t.Fatal(err)
	}
	r.Taken.Store(true)
	wants(t, "the write", r.write(head.ID, false, "two"), agent.Denied, agent.NoLimit)
	if err := <-read; err == nil {
		t.Error("the server took the request for complete")
	}
}

func TestCaps(t *testing.T) {
	begun, gone := make(chan struct{}, 9), make(chan struct{}, 9)
	r := newRig(t, silent(begun, gone), &http.Options{Open: 2, Requests: 4})
	var ids []uint32
	for range 2 {
		head, _, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, head.ID)
	}
	_, _, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
	wants(t, "a third at once", err, agent.Exhausted, agent.LimitHTTP)
	if e := agent.AsError(err); !strings.Contains(e.Hint, "cancel") {
		t.Errorf("hint: %q", e.Hint)
	}
	for _, id := range ids {
		r.close(id)
		head, _, err := r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
		if err != nil {
			t.Fatal(err)
		}
		r.close(head.ID)
	}
	_, _, err = r.open(abi.HTTPOpen{Method: "GET", URL: "/"}, "")
	wants(t, "a fifth", err, agent.Exhausted, agent.LimitHTTP)
	if !strings.Contains(err.Error(), "4 requests") {
		t.Errorf("%v", err)
	}
}

func FuzzCalls(f *testing.F) {
	open, _ := abi.AppendHTTPHead(nil, abi.HTTPOpen{Method: "GET", URL: "/"}, []byte("x"))
	for i := range uint8(6) {
		f.Add(i, open)
		f.Add(i, abi.AppendHTTPWrite(nil, 1, true, []byte("x")))
		f.Add(i, abi.AppendHTTPID(nil, 1))
	}
	names := []string{abi.CallHTTP, abi.CallHTTPOpen, abi.CallHTTPWrite, abi.CallHTTPHead, abi.CallHTTPRead, abi.CallHTTPClose}
	f.Fuzz(func(t *testing.T, i uint8, in []byte) {
		table := http.New(func() http.Client {
			return scripted{do: func(_ context.Context, r *egress.Request) (*egress.Response, error) {
				if r.Body == nil {
					r.Body = strings.NewReader("nothing")
				}
				return &egress.Response{Status: 200, Body: io.NopCloser(r.Body)}, nil
			}}
		}, nil)
		defer table.Close()
		_, err := table.Handlers()[names[int(i)%len(names)]](t.Context(), in)
		if err != nil && agent.KindOf(err) == agent.Internal {
			t.Fatalf("%s: %v", names[int(i)%len(names)], err)
		}
	})
}
