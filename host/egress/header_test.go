package egress

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/skep-dev/skep/agent"
)

// headerRows are headers that a guest sends, and what becomes of them: words of the error, or else those that arrive.
var headerRows = []struct {
	name   string
	header [][2]string
	words  string
	want   http.Header
}{
	{"as it is", [][2]string{{"X-A", "b"}}, "", http.Header{"X-A": {"b"}}},
	{"lower case", [][2]string{{"x-a", "b"}}, "", http.Header{"X-A": {"b"}}},
	{"twice", [][2]string{{"x-a", "b"}, {"X-A", "c"}}, "", http.Header{"X-A": {"b", "c"}}},
	{"blanks around", [][2]string{{"x-a", " b\t"}}, "", http.Header{"X-A": {"b"}}},
	{"not ASCII", [][2]string{{"x-a", "é"}}, "", http.Header{"X-A": {"é"}}},
	{"own user agent", [][2]string{{"user-agent", "me"}}, "", http.Header{"User-Agent": {"me"}}},
	{"traceparent", [][2]string{{"traceparent", "00-1-2-01"}}, "", http.Header{"Traceparent": {"00-1-2-01"}}},
	{"CRLF in value", [][2]string{{"x-a", "b\r\nX-Evil: 1"}}, "control character", nil},
	{"LF in value", [][2]string{{"x-a", "b\nX-Evil: 1"}}, "control character", nil},
	{"CR in value", [][2]string{{"x-a", "b\rX-Evil: 1"}}, "control character", nil},
	{"null in value", [][2]string{{"x-a", "b\x00"}}, "control character", nil},
	{"CRLF in name", [][2]string{{"x-a: b\r\nx-c", "d"}}, "not a header's name", nil},
	{"blank in name", [][2]string{{"content-length ", "5"}}, "not a header's name", nil},
	{"colon in name", [][2]string{{"transfer-encoding:", "chunked"}}, "not a header's name", nil},
	{"empty name", [][2]string{{"", "x"}}, "not a header's name", nil},
	{"pseudo header", [][2]string{{":authority", "evil.example.net"}}, "not a header's name", nil},
	{"name not ASCII", [][2]string{{"ｈost", "x"}}, "not a header's name", nil},
	{"Host of another", [][2]string{{"Host", "evil.example.net"}}, "another host", nil},
	{"Host twice", [][2]string{{"Host", "api.example.com"}, {"host", "evil.example.net"}}, "another host", nil},
	{"Host of the URL", [][2]string{{"host", "API.example.com"}}, "", http.Header{}},
	{"Transfer-Encoding", [][2]string{{"Transfer-Encoding", "chunked"}}, "not for requests", nil},
	{"Transfer_Encoding", [][2]string{{"Transfer_Encoding", "chunked"}}, "not for requests", nil},
	{"Trailer", [][2]string{{"trailer", "x"}}, "not for requests", nil},
	{"Upgrade", [][2]string{{"upgrade", "websocket"}}, "not for requests", nil},
	{"HTTP2-Settings", [][2]string{{"HTTP2-Settings", "AAMAAABk"}}, "not for requests", nil},
	{"Proxy-Authorization", [][2]string{{"proxy-authorization", "Basic eA=="}}, "not for requests", nil},
	{"Proxy-Connection", [][2]string{{"Proxy-Connection", "close"}}, "not for requests", nil},
	{"Content-Length", [][2]string{{"Content-Length", "5"}}, "", http.Header{}},
	{"Content_Length", [][2]string{{"Content_Length", "5"}}, "", http.Header{}},
	{"Connection", [][2]string{{"Connection", "close, Authorization"}, {"Authorization", "x"}}, "", http.Header{"Authorization": {"x"}}},
	{"Keep-Alive", [][2]string{{"keep-alive", "timeout=5"}}, "", http.Header{}},
	{"TE", [][2]string{{"te", "trailers"}}, "", http.Header{}},
	{"Expect", [][2]string{{"expect", "100-continue"}}, "", http.Header{}},
	{"Accept-Encoding", [][2]string{{"accept-encoding", "bzip2"}}, "", http.Header{}},
}

func TestRequestHeader(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t)
		var got http.Header
		w.https("api.example.com", apiAddr, h2, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
		e := w.egress()
		for _, row := range headerRows {
			t.Run(map[bool]string{false: "1.1/", true: "2/"}[h2]+row.name, func(t *testing.T) {
				_, _, err := get(t, e, nil, &Request{URL: "https://api.example.com/", Header: row.header})
				if row.words != "" {
					wantError(t, err, agent.Invalid, row.words)
					if strings.Contains(err.Error(), "Evil") || strings.Contains(err.Error(), "eA==") {
						t.Errorf("the error holds the value: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := row.want.Clone()
				want["Accept-Encoding"] = acceptEncoding
				if want["User-Agent"] == nil {
					want["User-Agent"] = agentHeader
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}
