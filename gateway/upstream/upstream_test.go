package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// counted is a server that counts its connections.
func counted(t *testing.T, h http.HandlerFunc) (s *httptest.Server, opened *atomic.Int64) {
	t.Helper()
	opened = new(atomic.Int64)
	s = httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, opened
}

func made(t *testing.T, o *http.Transport) *Transport {
	t.Helper()
	if o == nil {
		o = &http.Transport{}
	}
	tr := New(o)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func post(ctx context.Context, t *testing.T, tr *Transport, url, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return tr.RoundTrip(r)
}

// asked makes an exchange and reads it to its end.
func asked(t *testing.T, tr *Transport, url, body string) string {
	t.Helper()
	res, err := post(t.Context(), t, tr, url, body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(res.StatusCode) + " " + string(b)
}

// kept is how many idle connections there are.
func kept(tr *Transport) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.count
}

func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	_, _ = w.Write(b)
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	s, opened := counted(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/stream":
			for range 3 {
				_, _ = io.WriteString(w, "piece ")
				_ = http.NewResponseController(w).Flush()
			}
		default:
			echo(w, r)
		}
	})
	tr := made(t, nil)
	for range 3 {
		for path, want := range map[string]string{"/": "200 hello", "/empty": "204 ", "/stream": "200 piece piece piece "} {
			if got := asked(t, tr, s.URL+path, "hello"); got != want {
				t.Errorf("%s: %q", path, got)
			}
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A connection whose answer was not read to its end has the rest of it, and is not used again.
func TestConnectionsAreGivenUp(t *testing.T) {
	s, opened := counted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
		echo(w, r)
	})
	tr := made(t, nil)
	res, err := post(t.Context(), t, tr, s.URL, strings.Repeat("x", 100_000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := res.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(res.Body.Close(), res.Body.Close()); err != nil {
		t.Error(err)
	}
	if _, err := res.Body.Read(make([]byte, 10)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Error(err)
	}
	for range 2 {
		if got := asked(t, tr, s.URL+"/close", "b"); got != "200 b" {
			t.Error(got)
		}
	}
	if n := opened.Load(); n != 3 {
		t.Errorf("%d connections", n)
	}
}

// What a provider has closed while nobody used it is noticed before a request is written to it.
func TestClosedConnectionIsReplaced(t *testing.T) {
	s, opened := counted(t, echo)
	tr := made(t, nil)
	asked(t, tr, s.URL, "a")
	s.CloseClientConnections()
	if got := asked(t, tr, s.URL, "b"); got != "200 b" {
		t.Error(got)
	}
	if n := opened.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// What nobody can ask whether it is still open is replaced when nothing can be written to it.
func TestClosedPipeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		tr := made(t, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			opened++
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if q, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
					_, _ = io.Copy(io.Discard, q.Body)
				}
				_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}()
			return ours, nil
		}})
		for want := 1; want <= 2; want++ {
			if got := asked(t, tr, "http://provider.test/", "x"); got != "200 ok" || opened != want {
				t.Errorf("%s, %d connections", got, opened)
			}
			synctest.Wait()
		}
		tr.CloseIdleConnections()
	})
}

// Neither a request that is written here nor one that a goroutine of its own writes goes on once it is given up.
func TestCancelEndsWriting(t *testing.T) {
	why := errors.New("enough")
	for _, size := range []int{100, apart + 1} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe() // which nobody reads
			defer theirs.Close()
			tr := made(t, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }})
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { cancel(why) })
			if _, err := post(ctx, t, tr, "http://provider.test/", strings.Repeat("x", size)); !errors.Is(err, why) {
				t.Errorf("%d bytes: %v", size, err)
			}
		})
	}
}

func TestCancelEndsAnExchange(t *testing.T) {
	began, over := make(chan struct{}), make(chan struct{})
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then it listens for the client to go
		if r.URL.Path == "/head" {
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
		}
		began <- struct{}{}
		<-r.Context().Done()
		over <- struct{}{}
	})
	tr := made(t, nil)
	why := errors.New("enough")
	for _, path := range []string{"/silent", "/head"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-began; cancel(why) }()
		res, err := post(ctx, t, tr, s.URL+path, "x")
		if err == nil {
			_, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
		if err == nil || path == "/silent" && !errors.Is(err, why) {
			t.Errorf("%s: %v", path, err)
		}
		<-over // the provider notices
	}
	if n := kept(tr); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}

// A provider may answer before it has read what it is sent, and then close the connection.
func TestAnswerBeforeTheRequestWasRead(t *testing.T) {
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, "too large")
	})
	tr := made(t, nil)
	if got := asked(t, tr, s.URL, strings.Repeat("x", 8<<20)); got != "413 too large" {
		t.Error(got)
	}
	s, opened := counted(t, echo)
	large := strings.Repeat("y", 4<<20)
	for range 2 {
		if got := asked(t, tr, s.URL, large); got != "200 "+large {
			t.Errorf("%d bytes", len(got))
		}
	}
	if n := opened.Load(); n > 2 {
		t.Errorf("%d connections", n)
	}
}

// deaf is a connection whose other side takes the beginning of what is written, and no more.
type deaf struct {
	net.Conn
	took int
}

func (d *deaf) Write(p []byte) (int, error) {
	n := min(len(p), 1000-d.took)
	d.took += n
	if n < len(p) {
		return n, syscall.EPIPE
	}
	return n, nil
}

// The same of a request that is written before the answer is read.
func TestAnswerToHalfARequest(t *testing.T) {
	for says, want := range map[string]string{
		"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 9\r\n\r\ntoo large": "413 too large",
		"": syscall.EPIPE.Error(),
	} {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = io.WriteString(theirs, says)
			_ = theirs.Close()
		}()
		tr := made(t, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return &deaf{Conn: ours}, nil }})
		res, err := post(t.Context(), t, tr, "http://provider.test/", strings.Repeat("x", 100_000))
		if says == "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if got := strconv.Itoa(res.StatusCode) + " " + string(b); err != nil || got != want || kept(tr) != 0 {
			t.Errorf("%s, %v, %d are kept", got, err, kept(tr))
		}
	}
}

// raw is a provider that says one thing to each request of a connection.
func raw(t *testing.T, says string) *Transport {
	return made(t, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			for r := bufio.NewReader(theirs); ; {
				q, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, q.Body)
				if _, err := io.WriteString(theirs, says); err != nil || !strings.Contains(says, "\r\n\r\n") {
					return
				}
			}
		}()
		return ours, nil
	}, MaxResponseHeaderBytes: 1000})
}

func TestAnswersOfAllKinds(t *testing.T) {
	for name, c := range map[string]struct{ says, want, fails string }{
		"interim":        {says: "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", want: "200 ok"},
		"too many":       {says: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 9), fails: "interim"},
		"switched":       {says: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", fails: "switched"},
		"head too large": {says: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1000) + "\r\n\r\n", fails: "more than 1000 bytes"},
		"nothing":        {says: "", fails: "closed before the response"},
		"half a head":    {says: "HTTP/1.1 200 OK\r\nX: ", fails: "closed before the response"},
		"no HTTP":        {says: "hello\r\n\r\n", fails: "malformed"},
		"more than said": {says: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", want: "200 ok"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := raw(t, c.says)
			res, err := post(t.Context(), t, tr, "http://provider.test/", "x")
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(res.Body)
			if got := strconv.Itoa(res.StatusCode) + " " + string(b); err != nil || got != c.want {
				t.Errorf("%s, %v", got, err)
			}
			if name == "more than said" && kept(tr) != 0 {
				t.Error("a connection with bytes that nobody asked for is kept")
			}
		})
	}
	tr := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok")
	tr.plain = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(theirs))
			_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok")
			_ = theirs.Close()
		}()
		return ours, nil
	}
	res, err := post(t.Context(), t, tr, "http://provider.test/", "")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(b) != "ok" {
		t.Errorf("%s, %v", b, err)
	}
}

// Nothing that a value of a field has can become a field or a request of its own.
func TestFieldsStayFields(t *testing.T) {
	var sent bytes.Buffer
	tr := made(t, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			q, err := http.ReadRequest(bufio.NewReader(io.TeeReader(theirs, &sent)))
			if err == nil {
				_, _ = io.Copy(io.Discard, q.Body)
			}
			_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}()
		return ours, nil
	}})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://provider.test/", strings.NewReader("{}"))
	r.Header.Set("X-A", "1\r\nX-B: 2")
	r.Header["X-C\r\nX-D"] = []string{"3"}
	if _, err := tr.RoundTrip(r); err != nil {
		t.Fatal(err)
	}
	if text := sent.String(); strings.Contains(text, "\nX-B:") || strings.Contains(text, "\nX-D") {
		t.Error(text)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		tr.rest, tr.perHost = time.Minute, 2
		var list []*http.Response
		for range 3 {
			res, err := post(t.Context(), t, tr, "http://provider.test/", "x")
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, res)
		}
		for _, res := range list {
			if b, err := io.ReadAll(res.Body); err != nil || string(b) != "ok" {
				t.Errorf("%s, %v", b, err)
			}
			<-time.After(15 * time.Second)
		}
		if n := kept(tr); n != 2 { // the third is more than are kept
			t.Errorf("%d are kept", n)
		}
		<-time.After(20 * time.Second)
		synctest.Wait()
		if n := kept(tr); n != 1 {
			t.Errorf("%d are kept after the first minute", n)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if n := kept(tr); n != 0 {
			t.Errorf("%d are kept", n)
		}
		if tr.sweep != nil || len(tr.idle) != 0 {
			t.Error("it goes on looking for idle connections")
		}
	})
}

func TestWhereToIsSaid(t *testing.T) {
	var asked string
	refused := errors.New("refused")
	dial := func(_ context.Context, _, addr string) (net.Conn, error) { asked = addr; return nil, refused }
	tr := made(t, &http.Transport{DialContext: dial, DialTLSContext: dial})
	for url, want := range map[string]string{
		"http://a.test/x": "a.test:80", "https://a.test/x": "a.test:443", "https://a.test:8443/x": "a.test:8443", "http://[::1]/x": "[::1]:80",
	} {
		if _, err := post(t.Context(), t, tr, url, ""); !errors.Is(err, refused) || asked != want {
			t.Errorf("%s: %s, %v", url, asked, err)
		}
	}
	for _, url := range []string{"ftp://a.test/", "https://a.test/"} {
		if _, err := post(t.Context(), t, made(t, nil), url, ""); err == nil || !strings.Contains(err.Error(), "upstream: ") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
