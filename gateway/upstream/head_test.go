package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is read here means what net/http makes of it, and as much is left of what comes after it.
func FuzzReadUsual(f *testing.F) {
	for _, s := range []string{
		"Content-Length: 2\r\n\r\nok", "content-length: 2\r\nA: 1\r\na:\t2 \r\n\r\nok and more", "Content-Length: 0\r\n\r\n", "Content-Length: 9\r\n\r\ncut",
		"Transfer-Encoding: chunked\r\nRequest-Id: 1\r\n\r\n2\r\nok\r\n3;x=y\r\n...\r\n0\r\n\r\nmore", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: 1\r\n\r\nmore",
		"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nok", "Content-Length: 2\r\nContent-Length: 3\r\n\r\nokay",
		"Connection: close\r\nContent-Length: 2\r\n\r\nok", "Connection: keep-alive\r\nContent-Length: 2\r\n\r\nok", "A: 1\nB: 2\r\nContent-Length: 2\r\n\r\nok",
		"A: 1\r\n B: 2\r\nContent-Length: 2\r\n\r\nok", "A : 1\r\nContent-Length: 2\r\n\r\nok", "Content-Length: +2\r\n\r\nok", "X: y\r\n\r\nuntil it closes",
	} {
		f.Add("HTTP/1.1 200 OK\r\n" + s)
	}
	f.Add("HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok")
	f.Add("HTTP/1.1 429\r\nContent-Length: 2\r\n\r\nok")
	f.Add("HTTP/1.1 200\nA: 1\r\nContent-Length: 2\r\n\r\nok")
	f.Fuzz(func(t *testing.T, text string) {
		q := httptest.NewRequest(http.MethodPost, "/", nil)
		ours, theirs := bufio.NewReaderSize(strings.NewReader(text), readBytes), bufio.NewReaderSize(strings.NewReader(text), readBytes)
		got := readUsual(ours, q)
		if got == nil {
			if rest, _ := io.ReadAll(ours); string(rest) != text {
				t.Errorf("%q is left of %q, which was not read", rest, text)
			}
			return
		}
		want, err := http.ReadResponse(theirs, q)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		said, err := io.ReadAll(got.Body)
		wanted, fails := io.ReadAll(want.Body)
		if string(said) != string(wanted) || (err == nil) != (fails == nil) {
			t.Errorf("%q: body %q, %v; want %q, %v", text, said, err, wanted, fails)
		}
		left, _ := io.ReadAll(ours)
		after, _ := io.ReadAll(theirs)
		if err == nil && string(left) != string(after) {
			t.Errorf("%q: %q is left; want %q", text, left, after)
		}
		got.Body, want.Body, got.Trailer, want.Trailer = nil, nil, nil, nil
		got.Request, want.Request = nil, nil
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	})
}

// What is written here is read as what net/http writes.
func FuzzWrite(f *testing.F) {
	f.Add("POST", "provider.test:80", "/v1/messages", "", "X-Api-Key", "k", "{}")
	f.Add("POST", "provider.test", "/v1beta/models/m:streamGenerateContent", "alt=sse", "Anthropic-Beta", "a, b", "{}")
	f.Add("PUT", "a", "/a%20b", "x y", "A\r\nB", "1\r\nC: 2", "body")
	f.Add("POST", "a", "/", "", "Content-Length", "9", "body")
	f.Add("POST", "a", "/", "", "x-lower", " a ", strings.Repeat("long ", writeBytes))
	f.Fuzz(func(t *testing.T, method, host, path, query, name, value, body string) {
		request := func() *http.Request {
			return &http.Request{
				Method: method, Host: host, URL: &url.URL{Scheme: "http", Host: host, Path: path, RawQuery: query}, ContentLength: int64(len(body)),
				Header: http.Header{"User-Agent": {"skep"}, name: {value, "second"}}, Body: io.NopCloser(strings.NewReader(body)),
			}
		}
		if !plain(request()) {
			return
		}
		var ours, theirs bytes.Buffer
		w := bufio.NewWriterSize(&ours, writeBytes)
		if err := errors.Join(write(w, request()), w.Flush(), request().Write(&theirs)); err != nil {
			t.Fatal(err)
		}
		got, err := http.ReadRequest(bufio.NewReader(&ours))
		if err != nil {
			t.Fatal(err)
		}
		want, err := http.ReadRequest(bufio.NewReader(&theirs))
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(got.Body)
		if string(said) != body || ours.Len() > 0 {
			t.Errorf("body %q; want %q", said, body)
		}
		if d := cmp.Diff([]any{want.Method, want.Host, want.RequestURI, want.Header, want.ContentLength},
			[]any{got.Method, got.Host, got.RequestURI, got.Header, got.ContentLength}); d != "" {
			t.Error(d)
		}
	})
}
