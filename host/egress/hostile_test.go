package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// TestHostile has servers that answer with bytes no honest one sends. What the guest gets is one response, or an error in words
// that repeat nothing of it.
func TestHostile(t *testing.T) {
	const evil = "EVIL"
	many := func(n int, line string) string { return strings.Repeat(line, n) }
	for _, row := range []struct {
		name, answer string
		status       int // 0 for an error
		body         string
		kind         agent.Kind
		words        string
	}{
		{"honest", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 0, ""},
		{"honest, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, "ok", 0, ""},
		{"length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nEVIL", 200, "ok", 0, ""},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 6\r\n\r\nokEVIL", 0, "", agent.Unavailable, "not valid HTTP"},
		{"two lengths in one line", "HTTP/1.1 200 OK\r\nContent-Length: 2, 6\r\n\r\nokEVIL", 0, "", agent.Unavailable, "not valid HTTP"},
		{"the same length twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 0, ""},
		{"negative length", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nEVIL", 0, "", agent.Unavailable, "not valid HTTP"},
		{"length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nokEVIL", 0, "", agent.Unavailable, "not valid HTTP"},
		{"length in hexadecimal", "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nokEVIL", 0, "", agent.Unavailable, "not valid HTTP"},
		{"length above 2^64", "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551618\r\n\r\nokEVIL", 0, "", agent.Unavailable, "not valid HTTP"},
		{"length above the limit", "HTTP/1.1 200 OK\r\nContent-Length: 33554433\r\n\r\nEVIL", 0, "", agent.Exhausted, "more than 33554432 bytes"},
		{"longer than announced", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 EVIL\r\n\r\n", 200, "ok", 0, ""},
		{"shorter than announced", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok", 200, "ok", agent.Unavailable, "ended before"},
		{"unknown transfer encoding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: EVIL\r\n\r\nok", 0, "", agent.Unavailable, "not valid HTTP"},
		{"chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 0, "", agent.Unavailable, "not valid HTTP"},
		{"gzip as transfer encoding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, "", agent.Unavailable, "not valid HTTP"},
		{"bad chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nEVIL\r\n", 200, "", agent.Unavailable, "not valid HTTP"},
		{"huge chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 200, "", agent.Unavailable, "not valid HTTP"},
		{"chunk extensions", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n", 200, "ok", 0, ""},
		{"flood of chunk extensions", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + many(200, "1;"+many(1000, "x")+"\r\nk\r\n"), 200, "", agent.Unavailable, ""},
		{"chunk without CRLF", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokEVIL0\r\n\r\n", 200, "ok", agent.Unavailable, "not valid HTTP"},
		{"trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n2\r\nok\r\n0\r\nX-A: EVIL\r\n\r\n", 200, "ok", 0, ""},
		{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 2\nX-A: b\n\nok", 200, "ok", 0, ""},
		{"bare CR in a header", "HTTP/1.1 200 OK\r\nX-A: b\rEVIL: c\r\nContent-Length: 2\r\n\r\nok", 0, "", agent.Unavailable, "not valid HTTP"},
		{"null in a header", "HTTP/1.1 200 OK\r\nX-A: \x00EVIL\r\nContent-Length: 2\r\n\r\nok", 0, "", agent.Unavailable, "not valid HTTP"},
		{"folded header", "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 0, ""},
		{"folded length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok", 200, "ok", 0, ""},
		{"folded first header", "HTTP/1.1 200 OK\r\n X-A: EVIL\r\nContent-Length: 2\r\n\r\nok", 0, "", agent.Unavailable, "not valid HTTP"},
		{"blank before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nokEVIL", 0, "", agent.Unavailable, "a header that is not valid"},
		{"no colon", "HTTP/1.1 200 OK\r\nEVIL\r\n\r\n", 0, "", agent.Unavailable, "not valid HTTP"},
		{"not HTTP", "SSH-2.0-EVIL\r\n", 0, "", agent.Unavailable, "not valid HTTP"},
		{"HTTP/0.9", "<html>EVIL", 0, "", agent.Unavailable, "not valid HTTP"},
		{"HTTP/3", "HTTP/3.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 0, ""},
		{"status of four digits", "HTTP/1.1 2000 EVIL\r\n\r\n", 0, "", agent.Unavailable, "not valid HTTP"},
		{"status that is no number", "HTTP/1.1 EVIL\r\n\r\n", 0, "", agent.Unavailable, "not valid HTTP"},
		{"status text with control characters", "HTTP/1.1 200 \x1b[31mEVIL\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 0, ""},
		{"HTTP/1.0 to the end of the connection", "HTTP/1.0 200 OK\r\n\r\nok", 200, "ok", 0, ""},
		{"huge header", "HTTP/1.1 200 OK\r\nX-A: " + many(1<<20, "x"), 0, "", agent.Exhausted, "more than 131072 bytes"},
		{"huge status line", "HTTP/1.1 200 " + many(1<<20, "x"), 0, "", agent.Exhausted, "more than 131072 bytes"},
		{"header without end", "HTTP/1.1 200 OK\r\n" + many(50000, "X-A: b\r\n"), 0, "", agent.Exhausted, "more than"},
		{"200 headers", "HTTP/1.1 200 OK\r\n" + many(199, "X-A: b\r\n") + "Date: x\r\n\r\n", 200, "", 0, ""},
		{"201 headers", "HTTP/1.1 200 OK\r\n" + many(201, "X-A: b\r\n") + "\r\n", 0, "", agent.Exhausted, "more than 200 headers"},
		{"early hints", "HTTP/1.1 103 Early Hints\r\nLink: EVIL\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 0, ""},
		{"100 unasked", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 0, ""},
		{"five informational responses", many(5, "HTTP/1.1 102 Processing\r\n\r\n") + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 0, ""},
		{"six informational responses", many(6, "HTTP/1.1 102 Processing\r\n\r\n") + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, "", agent.Exhausted, "more than 5 informational"},
		{"flood of informational responses", many(10000, "HTTP/1.1 103 Early Hints\r\nX: EVIL\r\n\r\n"), 0, "", agent.Exhausted, "more than 5 informational"},
		{"101 unasked", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: EVIL\r\nConnection: upgrade\r\n\r\nEVIL", 0, "", agent.Unavailable, "changed protocols unasked"},
		{"end at once", "", 0, "", agent.Unavailable, "ended before"},
		{"end in the header", "HTTP/1.1 200 OK\r\nX-A: EV", 0, "", agent.Unavailable, "ended before"},
		{"204 with a body", "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nEVIL", 204, "", 0, ""},
		{"304 with a body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nEVIL", 304, "", 0, ""},
		{"TLS alert", "\x15\x03\x01\x00\x02\x02\x46", 0, "", agent.Unavailable, "not valid HTTP"},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, "", agent.Unavailable, "not valid HTTP"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.raw("api.example.com", apiAddr, func(c net.Conn, _ *bufio.Reader, _ *http.Request) {
				_, _ = io.WriteString(c, row.answer)
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			})
			res, body, err := get(t, w.egress(), nil, &Request{URL: "http://api.example.com/?q=hidden"})
			if row.words != "" || row.kind != 0 {
				wantError(t, err, row.kind, row.words)
				if strings.Contains(fmt.Sprintf("%v %+v", err, agent.AsError(err)), evil) || strings.Contains(err.Error(), "hidden") {
					t.Errorf("the error repeats what came: %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if row.status == 0 {
				if res != nil {
					t.Errorf("got status %d and %q", res.Status, body)
				}
				return
			}
			if res.Status != row.status || body != row.body && err == nil {
				t.Errorf("got %d %q, want %d %q", res.Status, body, row.status, row.body)
			}
			if got := fmt.Sprint(res.Header, res.StatusText); strings.Contains(got, evil) || strings.ContainsAny(got, "\r\n\x00\x1b") {
				t.Errorf("the response holds %q", got)
			}
		})
	}
}

// TestSmuggledResponse has a server that sends a second response in the body of the first. A later request must not get it.
func TestSmuggledResponse(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.raw("api.example.com", apiAddr, func(c net.Conn, _ *bufio.Reader, req *http.Request) {
		n++
		if req.URL.Path == "/first" { // in one write, so that the second response is there when the first one ends
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")
	})
	e := w.egress()
	if _, body, err := get(t, e, nil, &Request{URL: "http://api.example.com/first"}); err != nil || body != "ok" {
		t.Fatalf("%q, %v", body, err)
	}
	if _, body, err := get(t, e, nil, &Request{Owner: Owner{Agent: "other"}, URL: "http://api.example.com/second"}); err != nil || body != "second" {
		t.Errorf("another agent got %q, %v", body, err)
	}
}

// TestRequestFraming reads raw what is sent: one request, whatever its body looks like.
func TestRequestFraming(t *testing.T) {
	inner := "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"
	for _, row := range []struct {
		name   string
		length int64
		body   io.Reader
		err    string
		late   bool
	}{
		{"known length", int64(len(inner)), io.MultiReader(strings.NewReader(inner)), "", false},
		{"in memory", 0, strings.NewReader(inner), "", false},
		{"chunked", -1, io.MultiReader(strings.NewReader(inner)), "", false},
		{"longer than announced", 5, io.MultiReader(strings.NewReader(inner)), "announced", true},
		{"shorter than announced", 5000, io.MultiReader(strings.NewReader(inner)), "announced", false},
		{"in memory, longer than announced", 5, strings.NewReader(inner), "announced", false},
		{"ends with an error", -1, io.MultiReader(strings.NewReader(inner), failing{io.ErrNoProgress}), "ended with an error", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			type arrival struct{ path, body string }
			got := make(chan arrival, 10)
			w.raw("api.example.com", apiAddr, func(c net.Conn, _ *bufio.Reader, req *http.Request) {
				b, _ := io.ReadAll(req.Body)
				got <- arrival{req.URL.Path, string(b)}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			})
			_, _, err := get(t, w.egress(), nil, &Request{Method: "POST", URL: "http://api.example.com/x", Length: row.length, Body: row.body})
			if row.late && err == nil { // the response was there before the rest was read, which is never sent
				if a := <-got; a.body != inner[:row.length] {
					t.Errorf("arrived: %+v", a)
				}
			} else if row.err != "" {
				kind := agent.Invalid
				if row.err != "announced" {
					kind = agent.Cancelled
				}
				wantError(t, err, kind, row.err)
			} else if err != nil {
				t.Fatal(err)
			} else if a := <-got; a.path != "/x" || a.body != inner {
				t.Errorf("arrived: %+v", a)
			}
			for len(got) > 0 {
				if a := <-got; a.path == "/smuggled" {
					t.Errorf("arrived: %+v", a)
				}
			}
		})
	}
}
