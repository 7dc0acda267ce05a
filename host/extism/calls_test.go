package extism_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	sdk "github.com/extism/go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
	"github.com/skep-dev/skep/host/grant"
	granthttp "github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/host/grant/http/clienttest"
)

// serve starts a server on loopback that tells what it was asked.
func serve(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Add("X-Two", "a")
		w.Header().Add("X-Two", "b")
		w.Header()["Date"] = []string{"today"}
		if from, found := strings.CutPrefix(r.URL.Path, "/from"); found {
			http.Redirect(w, r, "/to"+from, http.StatusTemporaryRedirect)
			return
		}
		if size, found := strings.CutPrefix(r.URL.Path, "/size/"); found {
			n, _ := strconv.Atoi(size)
			_, _ = w.Write(bytes.Repeat([]byte("s"), n))
			return
		}
		if r.URL.Path == "/none" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusTeapot)
		if _, err := fmt.Fprintf(w, "%s %s %q %s", r.Method, r.URL, r.Header.Get("X-Asked"), body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// answerHTTP is a host that grants every request.
func answerHTTP(client *http.Client) func(context.Context, string, []byte) ([]byte, error) {
	return func(ctx context.Context, name string, in []byte) ([]byte, error) {
		if name != abi.CallHTTP {
			return nil, agent.Errorf(agent.Denied, "unexpected call %q", name)
		}
		var asked abi.HTTPRequest
		if err := json.Unmarshal(in, &asked); err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, asked.Method, asked.URL, bytes.NewReader(asked.Body))
		if err != nil {
			return nil, err
		}
		for _, h := range asked.Header {
			req.Header.Add(h[0], h[1])
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		out := abi.HTTPResponse{Status: resp.StatusCode, Body: body}
		for k, vs := range resp.Header {
			for _, v := range vs {
				out.Header = append(out.Header, [2]string{k, v})
			}
		}
		return json.Marshal(out)
	}
}

// door is a host that grants requests to loopback, by the handlers that a server has, with bodies of at most whole bytes.
func door(t *testing.T, whole int64) (func(context.Context, string, []byte) ([]byte, error), *clienttest.Clients) {
	clients := clienttest.New()
	t.Cleanup(clients.Close)
	table := granthttp.New(clients.Client, &granthttp.Options{Whole: whole})
	t.Cleanup(table.Close)
	return grant.NewDoor(agent.DefaultLimits(), table.Handlers(), nil).Call, clients
}

// TestHTTPSize wants the same size of a body to be the last one that is taken, here and in the SDK.
func TestHTTPSize(t *testing.T) {
	srv := serve(t)
	wasm := build(t, "pdk")
	ours := load(t, wasm)
	granted, _ := door(t, 4096)
	theirs := oracle(t, wasm, sdk.Manifest{AllowedHosts: []string{"127.0.0.1"}, Memory: &sdk.ManifestMemory{MaxHttpResponseBytes: 4096, MaxVarBytes: -1}})
	for size, fails := range map[int]bool{0: false, 4095: false, 4096: false, 4097: true, 1 << 20: true} {
		in := fmt.Sprintf(`{"url":"%s/size/%d"}`, srv.URL, size)
		code, _, wantErr := ask(t, theirs, "fetch", in, nil)
		_, _, err := ours.Call(t.Context(), extism.Call{Function: "fetch", Input: input(in), Env: cell.Env{Calls: granted}})
		if (wantErr != nil || code != 0) != fails || (err != nil) != fails {
			t.Errorf("%d bytes: %v; the SDK says %v", size, err, wantErr)
		}
		if e := agent.AsError(err); fails && (e.Limit != agent.LimitHTTP || !strings.Contains(e.Msg, "more than 4096 bytes")) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestHTTP(t *testing.T) {
	srv := serve(t)
	at, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	pdk := build(t, "pdk")
	granted, clients := door(t, 1<<20)
	for _, tc := range []struct {
		name, function string
		wasm           []byte
		inputs         []string
	}{
		{"go-pdk", "fetch", pdk, []string{
			`{"url":"` + srv.URL + `/x?y=1"}`,
			`{"url":"` + srv.URL + `/p","method":2,"header":{"X-Asked":"yes"},"body":"some bytes"}`,
			`{"url":"` + srv.URL + `/none"}`,
			`{"url":"` + srv.URL + `/from/here","method":2,"body":"again"}`,
			`{"url":"` + srv.URL + `/size/100000"}`,
		}},
		{"http_headers", "http_get", fixture(t, "http_headers.wasm"), []string{`{"url":"` + srv.URL + `/none"}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ours := load(t, tc.wasm)
			allowed := oracle(t, tc.wasm, sdk.Manifest{AllowedHosts: []string{at.Hostname()}})
			denied := oracle(t, tc.wasm, sdk.Manifest{})
			for _, in := range tc.inputs {
				_, want, err := ask(t, allowed, tc.function, in, nil)
				if err != nil {
					t.Fatalf("the SDK: %v", err)
				}
				got := call(t, ours, extism.Call{Function: tc.function, Input: input(in), Env: cell.Env{Calls: granted}})
				if d := cmp.Diff(value(t, want), value(t, got)); d != "" {
					t.Errorf("%s (-SDK +ours):\n%s", in, d)
				}
				_, _, wantErr := ask(t, denied, tc.function, in, nil)
				_, usage, err := ours.Call(t.Context(), extism.Call{Function: tc.function, Input: input(in)})
				said, _, _ := strings.Cut(fmt.Sprint(wantErr), " (recovered")
				if err == nil || agent.KindOf(err) != agent.Denied || !strings.HasPrefix(err.Error(), said) {
					t.Errorf("refused with %v (%v), the SDK says %q", err, agent.KindOf(err), said)
				}
				if usage.HostCalls != 1 {
					t.Errorf("%d host calls counted, want 1", usage.HostCalls)
				}
				clients.Taken.Store(true)
				_, _, err = ours.Call(t.Context(), extism.Call{Function: tc.function, Input: input(in), Env: cell.Env{Calls: granted}})
				if agent.KindOf(err) != agent.Denied || !strings.Contains(err.Error(), "taken back") {
					t.Errorf("with its grant taken back: %v", err)
				}
				clients.Taken.Store(false)
			}
		})
	}
}

// TestHTTPFixture runs a module whose URL is built in, on a host that serves that name from loopback.
func TestHTTPFixture(t *testing.T) {
	srv := serve(t)
	a := load(t, fixture(t, "http.wasm"))
	client := &http.Client{Transport: redirect{srv.Listener.Addr().String()}}
	got := call(t, a, extism.Call{Function: "run_test", Env: cell.Env{Calls: answerHTTP(client)}})
	if want := `GET /todos/1 "" `; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	_, _, err := a.Call(t.Context(), extism.Call{Function: "run_test"})
	if want := "HTTP request to 'https://jsonplaceholder.typicode.com/todos/1' is not allowed"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// redirect sends every request to one address, in the clear.
type redirect struct{ addr string }

func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = "http", r.addr
	return http.DefaultTransport.RoundTrip(req)
}

func value(t *testing.T, s string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return v
}

func TestSkepCall(t *testing.T) {
	a := load(t, build(t, "skep"))
	calls := func(_ context.Context, name string, in []byte) ([]byte, error) {
		switch name {
		case "double":
			return append(in, in...), nil
		case "break":
			return nil, io.ErrUnexpectedEOF
		}
		return nil, agent.Errorf(agent.Denied, "no %s here", name)
	}
	for in, want := range map[string]string{
		"double abc": "0 abcabc",
		"double ":    "0 ",
		"nothing x":  `4 {"kind":"denied","message":"no nothing here"}`,
		"break x":    `1 {"kind":"internal","message":"internal error"}`,
	} {
		if got := call(t, a, extism.Call{Function: "ask", Input: input(in), Env: cell.Env{Calls: calls}}); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for _, in := range []string{"", strings.Repeat("n", abi.MaxName+1) + " x"} {
		_, _, err := a.Call(t.Context(), extism.Call{Function: "ask", Input: input(in), Env: cell.Env{Calls: calls}})
		if agent.KindOf(err) != agent.Failed || !strings.Contains(err.Error(), "name is empty, or longer") {
			t.Errorf("a bad name: %v", err)
		}
	}
}

// TestSkepBatch's host answers none of the calls before all have come.
func TestSkepBatch(t *testing.T) {
	a := load(t, build(t, "skep"))
	const n = 20
	var all sync.WaitGroup
	all.Add(n)
	calls := func(_ context.Context, name string, in []byte) ([]byte, error) {
		all.Done()
		all.Wait()
		if name == "odd" {
			return nil, agent.Errorf(agent.NotFound, "odd %s", in)
		}
		return in, nil
	}
	var in, want strings.Builder
	for i := range n {
		if i%2 == 1 {
			fmt.Fprintf(&in, "odd %d\n", i)
			fmt.Fprintf(&want, "5 {\"kind\":\"not_found\",\"message\":\"odd %d\"}\n", i)
		} else {
			fmt.Fprintf(&in, "even %d\n", i)
			fmt.Fprintf(&want, "0 %d\n", i)
		}
	}
	out, usage, err := a.Call(t.Context(), extism.Call{Function: "batch", Input: input(in.String()), Env: cell.Env{Calls: calls}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.String(), string(out.Body)); d != "" {
		t.Error(d)
	}
	if usage.HostCalls != n {
		t.Errorf("%d host calls counted, want %d", usage.HostCalls, n)
	}

	big := func(_ context.Context, _ string, in []byte) ([]byte, error) { return make([]byte, 40<<20), nil }
	out, _, err = a.Call(t.Context(), extism.Call{Function: "batch", Input: input(strings.Repeat("x y\n", 4)), Env: cell.Env{Calls: big}})
	if e := agent.AsError(err); err == nil || e.Limit != agent.LimitMemory {
		t.Errorf("replies of 160 MiB: %d bytes, %v", len(out.Body), err)
	}
	_, _, err = a.Call(t.Context(), extism.Call{
		Function: "batch", Input: input(strings.Repeat("x y\n", 4)), Env: cell.Env{Limits: agent.Limits{HostCalls: 3}},
	})
	if e := agent.AsError(err); err == nil || e.Limit != agent.LimitHostCalls {
		t.Errorf("4 of 3 calls: %v", err)
	}
}
