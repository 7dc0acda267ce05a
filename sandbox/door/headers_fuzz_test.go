package door

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzHeaders reads the head of a request that a box may have sent: what is of its connection alone stays here, the rest goes on as it was.
func FuzzHeaders(f *testing.F) {
	f.Add("A: 1\r\nConnection: keep-alive, a\r\nB: 2\r\nB: 3\r\n")
	f.Add("connection: , X-Y ,\r\nx-y: 1\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nupgrade: H2C\r\n")
	f.Add("Upgrade: websocket\r\nConnection: Upgrade\r\n")
	f.Fuzz(func(t *testing.T, head string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n" + head + "\r\n")))
		if err != nil {
			return
		}
		list, err := headersOf(r)
		asked := slices.ContainsFunc(r.Header["Upgrade"], func(s string) bool { return !strings.EqualFold(strings.TrimSpace(s), "h2c") })
		if (err != nil) != asked {
			t.Fatalf("%q: %v", head, err)
		}
		if err != nil {
			return
		}
		sent := http.Header{}
		for _, h := range list {
			sent.Add(h[0], h[1])
		}
		said := strings.ToLower(strings.Join(r.Header["Connection"], ","))
		for name, values := range r.Header {
			own := slices.Contains(ofConnection, name) || slices.ContainsFunc(strings.Split(said, ","), func(s string) bool { return strings.TrimSpace(s) == strings.ToLower(name) })
			if got := sent[name]; own && got != nil || !own && !slices.Equal(got, values) {
				t.Fatalf("%q: %s went on as %q", head, name, got)
			}
			delete(sent, name)
		}
		if len(sent) > 0 {
			t.Fatalf("%q: there came %q", head, sent)
		}
	})
}
