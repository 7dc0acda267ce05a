package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkCall measures a call over one kept connection, with a cell that costs nothing: what is left is HTTP, the adapter
// and the runtime's records.
func BenchmarkCall(b *testing.B) {
	r := start(b, nil)
	r.agent("a")
	benchRequest(b, r, fmt.Sprintf("POST /v1/agents/a/call/echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"hello\":123}", r.token))
}

// BenchmarkHealth is the floor: the same without a token, a body or a handler's work.
func BenchmarkHealth(b *testing.B) {
	r := start(b, nil)
	benchRequest(b, r, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

func benchRequest(b *testing.B, r *rig, request string) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	br := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(conn, request); err != nil {
			b.Fatal(err)
		}
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != 200 {
			b.Fatal(res, err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			b.Fatal(err)
		}
	}
}
