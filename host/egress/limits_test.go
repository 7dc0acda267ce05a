package egress

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
)

// piped is a world inside a bubble of synctest: its one host is served through a pipe, on time that does not pass by itself.
type piped struct {
	*Egress
	lookup time.Duration // that a name takes
}

func newPiped(t *testing.T, l Limits, lookup time.Duration, serve func(net.Conn, *bufio.Reader)) *piped {
	p := &piped{lookup: lookup}
	p.Egress = New(&Options{Limits: l, Resolver: p, Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		if serve == nil {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			serve(theirs, bufio.NewReader(theirs))
		}()
		return ours, nil
	}})
	p.dialer.own = func() ([]netip.Addr, error) { return []netip.Addr{}, nil }
	return p
}

// finish lets everybody in the bubble end.
func (p *piped) finish() {
	_ = p.Close()
	time.Sleep(24 * time.Hour)
}

func (p *piped) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	select {
	case <-time.After(p.lookup):
		return []netip.Addr{netip.MustParseAddr(apiAddr)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// say answers one request with what each function writes.
func say(parts ...func(net.Conn)) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		for _, f := range parts {
			f(c)
		}
		_, _ = io.Copy(io.Discard, r)
	}
}

func write(s string) func(net.Conn) { return func(c net.Conn) { _, _ = io.WriteString(c, s) } }
func after(d time.Duration) func(net.Conn) {
	return func(net.Conn) { time.Sleep(d) }
}

// TestTimes has each limit of time kept just, and then not.
func TestTimes(t *testing.T) {
	const s = time.Second
	head := write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
	for _, row := range []struct {
		name   string
		limits Limits
		lookup time.Duration
		serve  func(net.Conn, *bufio.Reader)
		words  string
		took   time.Duration
	}{
		{"lookup in time", Limits{Connect: 3 * s}, 3*s - 1, say(head, write("okok")), "", 3*s - 1},
		{"lookup too long", Limits{Connect: 3 * s}, 3*s + 1, say(head, write("okok")), "connecting to api.example.com took more than 3s", 3 * s},
		{"no connection", Limits{Connect: 3 * s}, 0, nil, "connecting to api.example.com took more than 3s", 3 * s},
		{"header in time", Limits{Header: 3 * s}, 0, say(after(3*s-1), head, write("okok")), "", 3*s - 1},
		{"header too late", Limits{Header: 3 * s}, 0, say(after(3*s+1), head, write("okok")), "header did not come within 3s", 3 * s},
		{"header that trickles", Limits{Header: 3 * s}, 0, say(write("HTTP/1.1 200 OK\r\n"), after(2*s), write("X-A: b\r\n"), after(2*s), write("\r\n")), "header did not come within 3s", 3 * s},
		{"informational responses for ever", Limits{Header: 3 * s}, 0, say(write("HTTP/1.1 102 Processing\r\n\r\n"), after(2*s), write("HTTP/1.1 102 Processing\r\n\r\n"), after(2*s)), "header did not come within 3s", 3 * s},
		{"body in time", Limits{Idle: 3 * s}, 0, say(head, after(3*s-1), write("ok"), after(3*s-1), write("ok")), "", 6*s - 2},
		{"body too late", Limits{Idle: 3 * s}, 0, say(head, write("ok"), after(3*s+1), write("ok")), "nothing of the response's body came for 3s", 3 * s},
		{"all in time", Limits{Total: 9 * s}, 0, say(head, write("o"), after(4*s), write("k"), after(5*s-1), write("ok")), "", 9*s - 1},
		{"body that trickles", Limits{Total: 9 * s}, 0, say(head, write("o"), after(4*s), write("k"), after(4*s), write("o"), after(4*s), write("k")), "more than 9s in all", 9 * s},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPiped(t, row.limits, row.lookup, row.serve)
				start := time.Now()
				_, body, err := get(t, p.Egress, nil, &Request{URL: "http://api.example.com/"})
				if took := time.Since(start); took != row.took {
					t.Errorf("took %v, want %v", took, row.took)
				}
				if row.words == "" {
					if err != nil || body != "okok" {
						t.Errorf("%q, %v", body, err)
					}
				} else {
					wantLimit(t, err, row.words)
				}
				p.finish()
			})
		})
	}
}

// TestSilentTLS has a host that takes connections and says nothing.
func TestSilentTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPiped(t, Limits{TLS: 3 * time.Second}, 0, func(_ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
		start := time.Now()
		_, _, err := get(t, p.Egress, nil, &Request{URL: "https://api.example.com/"})
		wantLimit(t, err, "the TLS handshake took more than 3s")
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		p.finish()
	})
}

// TestStalledUpload has a host that reads nothing of a body.
func TestStalledUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPiped(t, Limits{Idle: 3 * time.Second}, 0, func(_ net.Conn, r *bufio.Reader) {
			_, _ = http.ReadRequest(r)
			time.Sleep(time.Minute)
		})
		_, _, err := get(t, p.Egress, nil, &Request{Method: "POST", URL: "http://api.example.com/", Body: io.LimitReader(zeros{}, 1<<20), Length: -1})
		wantLimit(t, err, "took nothing of the request's body for 3s")
		p.finish()
	})
}

// TestSlowGuest takes its time with both bodies, which is nobody's fault.
func TestSlowGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPiped(t, Limits{Idle: time.Second, Header: time.Second}, 0, say(write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nokok")))
		r, w := io.Pipe()
		go func() {
			for range 3 {
				time.Sleep(time.Minute)
				_, _ = io.WriteString(w, "part")
			}
			_ = w.Close()
		}()
		res, err := p.Do(t.Context(), &guard{}, &Request{Method: "POST", URL: "http://api.example.com/", Body: r, Length: -1})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if b, err := io.ReadAll(res.Body); err != nil || string(b) != "okok" {
			t.Errorf("%q, %v", b, err)
		}
		_ = res.Body.Close()
		p.finish()
	})
}

// TestHappyEyeballs has a first address that does not answer: the next gets its turn, and each is one that was checked.
func TestHappyEyeballs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.names["api.example.com"] = []string{apiAddrV6, "2606:2800:220:1::2", apiAddr, "93.184.216.35", "93.184.216.36"}
		var mu sync.Mutex
		var dialled []string
		closed := 0
		start := time.Now()
		e := w.egress(func(o *Options) {
			o.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
				mu.Lock()
				dialled = append(dialled, to.Addr().String()+" "+time.Since(start).String())
				mu.Unlock()
				if to.Addr().Is6() {
					<-ctx.Done()
					mu.Lock()
					closed++
					mu.Unlock()
					return nil, ctx.Err()
				}
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					say(write("HTTP/1.1 204 No Content\r\n\r\n"))(theirs, bufio.NewReader(theirs))
				}()
				return ours, nil
			}
		})
		if _, _, err := get(t, e, nil, &Request{URL: "http://api.example.com/"}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(dialled) != 2 || dialled[0] != apiAddrV6+" 0s" || dialled[1] != apiAddr+" 250ms" || closed != 1 {
			t.Errorf("dialled %q, %d were cut", dialled, closed)
		}
		_ = e.Close()
	})
	w := newWorld(t)
	w.names["api.example.com"] = []string{"93.184.216.1", "93.184.216.2", "93.184.216.3", "93.184.216.4", "93.184.216.5"}
	_, _, err := get(t, w.egress(), nil, &Request{URL: "http://api.example.com/"})
	wantError(t, err, agent.Unavailable, "refused")
	if len(w.dials()) != maxTried {
		t.Errorf("dialled %v", w.dials())
	}
}

// TestCancel cuts a request wherever it stands.
func TestCancel(t *testing.T) {
	for _, row := range []struct {
		name   string
		lookup time.Duration
		serve  func(net.Conn, *bufio.Reader)
	}{
		{"in the lookup", time.Hour, nil},
		{"while connecting", 0, nil},
		{"before the header", 0, say(after(time.Hour))},
		{"in the body", 0, say(write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok"), after(time.Hour))},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never := time.Minute
				p := newPiped(t, Limits{Connect: never, Header: never, Idle: never, PerOwner: 1}, row.lookup, row.serve)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				start := time.Now()
				res, err := p.Do(ctx, &guard{}, &Request{URL: "http://api.example.com/"})
				if err == nil {
					_, err = io.ReadAll(res.Body)
				}
				wantError(t, err, agent.Cancelled, "cancelled")
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
				synctest.Wait()
				if x := p.pools.by[Owner{}]; x.users != 0 || !x.slots.TryAcquire(1) {
					t.Error("the slot was not given back") // although nobody closed the body
				}
				p.finish()
			})
		})
	}
	t.Run("with a cause of ours", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPiped(t, Limits{}, 0, say(after(time.Hour)))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(agent.Exceeded(agent.LimitWall, "the call took more than 1s")) })
			_, err := p.Do(ctx, &guard{}, &Request{URL: "http://api.example.com/"})
			wantError(t, err, agent.Exhausted, "the call took more than 1s")
			p.finish()
		})
	})
}

// TestCancelHandshake wants a connection that nobody waits for any more to end, or an agent could have any number of them.
func TestCancelHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan time.Duration, 1)
		start := time.Now()
		p := newPiped(t, Limits{TLS: time.Minute}, 0, func(_ net.Conn, r *bufio.Reader) {
			_, _ = io.Copy(io.Discard, r)
			gone <- time.Since(start)
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := p.Do(ctx, &guard{}, &Request{URL: "https://api.example.com/"})
		wantError(t, err, agent.Cancelled, "cancelled")
		if at := <-gone; at != time.Second {
			t.Errorf("the connection ended after %v", at)
		}
		p.finish()
	})
}

// TestAtOnce holds as many requests as may be, and has another one wait.
func TestAtOnce(t *testing.T) {
	for _, row := range []struct {
		name   string
		limits Limits
		second Owner
		words  string
	}{
		{"of one agent", Limits{PerOwner: 1}, Owner{Agent: "a"}, `agent "a" had as many outbound requests at once as may be, 1, for 5s`},
		{"of all", Limits{Concurrent: 1}, Owner{Agent: "b"}, "this server had as many outbound requests at once as may be, 1, for 5s"},
		{"of two agents", Limits{PerOwner: 1}, Owner{Agent: "b"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row.limits.Wait = 5 * time.Second
				p := newPiped(t, row.limits, 0, say(write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok"), after(time.Minute)))
				first, err := p.Do(t.Context(), &guard{}, &Request{Owner: Owner{Agent: "a"}, URL: "http://api.example.com/"})
				if err != nil {
					t.Fatal(err)
				}
				second := func() error {
					res, err := p.Do(t.Context(), &guard{}, &Request{Owner: row.second, URL: "http://api.example.com/"})
					if err == nil {
						_ = res.Body.Close()
					}
					return err
				}
				if err := second(); row.words == "" && err != nil {
					t.Error(err)
				} else if row.words != "" {
					wantLimit(t, err, row.words)
					if agent.AsError(err).After == 0 {
						t.Error("it does not say when to try again")
					}
				}
				time.AfterFunc(time.Second, func() { _ = first.Body.Close() })
				if err := second(); err != nil {
					t.Errorf("after the first one ended: %v", err)
				}
				p.finish()
			})
		})
	}
}

// TestSizes has each limit of size and count at its edge, and past it.
func TestSizes(t *testing.T) {
	const base = "https://api.example.com/"
	l := Limits{
		URL: 100, RequestHeaders: 5, RequestHeader: 50, RequestBytes: 1000, ResponseBytes: 1000, ResponseHeaders: 6, ResponseHeader: 4 << 10, Redirects: 3,
	}
	many := func(n int) string { return strings.Repeat("a", n) }
	respond := func(what string) func(int) *Request {
		return func(n int) *Request { return &Request{URL: base + what + "?" + strconv.Itoa(n)} }
	}
	for _, row := range []struct {
		name       string
		request    func(n int) *Request
		edge, past int
		words      string
	}{
		{"URL", func(n int) *Request { return &Request{URL: base + many(n-len(base))} }, 100, 101, "101 bytes, more than 100"},
		{"headers", func(n int) *Request { return &Request{URL: base, Header: slices.Repeat([][2]string{{"x", "v"}}, n)} }, 5, 6, "6 headers, more than 5"},
		{"bytes of headers", func(n int) *Request { return &Request{URL: base, Header: [][2]string{{"x", many(n - 1)}}} }, 50, 51, "more than 50 bytes"},
		{"body", func(n int) *Request { return &Request{URL: base, Body: strings.NewReader(many(n))} }, 1000, 1001, "the request's body has more than 1000 bytes"},
		{"stream", func(n int) *Request { return &Request{URL: base, Body: io.LimitReader(zeros{}, int64(n)), Length: -1} }, 1000, 1001, "the request's body has more than 1000 bytes"},
		{"endless stream", func(n int) *Request { return &Request{URL: base, Body: io.LimitReader(zeros{}, int64(n)), Length: -1} }, 0, math.MaxInt, "the request's body has more than 1000 bytes"},
		{"response's body", respond("length"), 1000, 1001, "the response's body has more than 1000 bytes"},
		{"response's stream", respond("stream"), 1000, 1001, "the response's body has more than 1000 bytes"},
		{"response's gzip", respond("gzip"), 1000, 1001, "the response's body has more than 1000 bytes"},
		{"response's headers", respond("headers"), 4, 5, "more than 6 headers"},
		{"response's header", respond("header"), 3 << 10, 4 << 10, "more than 4096 bytes"},
		{"redirects", respond("redirect"), 3, 4, "redirected more than 3 times"},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(row.name+map[bool]string{true: ", HTTP/2"}[h2], func(t *testing.T) {
				w := newWorld(t)
				w.https("api.example.com", apiAddr, h2, func(rw http.ResponseWriter, r *http.Request) { respondSized(t, rw, r) })
				e := w.egress(func(o *Options) { o.Limits = l })
				ask := func(n int) error {
					r := row.request(n)
					r.Method = "POST"
					_, _, err := get(t, e, nil, r)
					return err
				}
				if err := ask(row.edge); err != nil {
					t.Errorf("at the edge: %v", err)
				}
				wantLimit(t, ask(row.past), row.words)
			})
		}
	}
}

// respondSized answers with a response of the size that the query says, of what the path says.
func respondSized(t *testing.T, rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	n, _ := strconv.Atoi(r.URL.RawQuery)
	rw.Header()["Date"] = nil
	switch body := strings.Repeat("a", n); r.URL.Path {
	case "/length":
		rw.Header().Set("Content-Length", r.URL.RawQuery)
		_, _ = io.WriteString(rw, body)
	case "/stream":
		rw.(http.Flusher).Flush()
		_, _ = io.WriteString(rw, body)
	case "/gzip":
		rw.Header().Set("Content-Encoding", "gzip")
		_, _ = rw.Write(pack(t, []byte(body), "gzip"))
	case "/headers": // and two of the server's
		for i := range n {
			rw.Header().Set("X-"+strconv.Itoa(i), "v")
		}
		rw.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(rw, "a")
	case "/header":
		rw.Header().Set("X", body)
	case "/redirect":
		if n > 0 {
			http.Redirect(rw, r, "/redirect?"+strconv.Itoa(n-1), http.StatusTemporaryRedirect)
		}
	}
}

// TestNarrowed has a request's own limits count where they are less than the server's.
func TestNarrowed(t *testing.T) {
	w := newWorld(t)
	w.http("api.example.com", apiAddr, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, strings.Repeat("a", 100)) })
	e := w.egress(func(o *Options) { o.Limits.ResponseBytes = 100 })
	for most, want := range map[int64]bool{0: true, 99: false, 100: true, 1000: true} {
		_, _, err := get(t, e, nil, &Request{URL: "http://api.example.com/", Limits: Limits{ResponseBytes: most}})
		if (err == nil) != want {
			t.Errorf("%d: %v", most, err)
		}
	}
	w.http("api.example.com", apiAddr, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, strings.Repeat("a", 101)) })
	_, _, err := get(t, w.egress(func(o *Options) { o.Limits.ResponseBytes = 100 }), nil, &Request{URL: "http://api.example.com/", Limits: Limits{ResponseBytes: 1000}})
	wantLimit(t, err, "more than 100 bytes")
}
