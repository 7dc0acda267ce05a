package api

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func TestFiles(t *testing.T) {
	r := start(t, nil)
	se := r.session("a").ID
	base := "/v1/sessions/" + string(se) + "/files"
	want := func(method, target, body string, status int, in string, headers ...string) reply {
		t.Helper()
		if len(headers) == 0 {
			headers = []string{"Content-Type", formType}
		}
		res := r.do(method, base+target, body, headers...)
		if res.StatusCode != status || !strings.Contains(string(res.body), in) {
			t.Errorf("%s %s: %s %.300s, want %d with %q", method, target, res.Status, res.body, status, in)
		}
		return res
	}
	want("GET", "", "", 200, `{"items":[]}`)
	want("PUT", "/in/data.csv", "a,b\n1,2\n", 200, `"type":"text/csv"`)
	want("PUT", "/in/data.csv", "a,b\n1,2\n", 200, `"rev":1`)
	want("PUT", "/in%2Fx%20y.bin", "\x00\x01", 200, `"path":"in/x y.bin"`, "Content-Type", "application/x-mine")
	want("PUT", "/in/data.csv?if_rev=0", "other", 409, `"kind":"exists"`)
	want("PUT", "/in/data.csv?if_rev=9", "other", 409, `"kind":"conflict"`)
	want("PUT", "/in/data.csv?if_rev=x", "other", 400, "if_rev")
	want("PUT", "/../x", "other", 400, "")
	want("PUT", "/empty", "", 200, `"size":0`)
	want("GET", "?prefix=in/&limit=1", "", 200, `"next":`)
	want("GET", "?prefix=in/&after=x", "", 400, "cursor")
	want("GET", "/none", "", 404, "has no file")
	res := want("GET", "/in/x%20y.bin", "", 200, "\x00\x01")
	for name, v := range map[string]string{
		"Content-Type": "application/x-mine", "Content-Length": "2", "Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff",
		"Content-Disposition": `attachment; filename="x y.bin"`,
	} {
		if res.Header.Get(name) != v {
			t.Errorf("%s: %q, want %q", name, res.Header.Get(name), v)
		}
	}
	etag := res.Header.Get("ETag")
	want("GET", "/in/x%20y.bin", "", 304, "", "If-None-Match", `"x", `+etag)
	want("GET", "/empty", "", 200, "")
	want("DELETE", "/in/data.csv?if_rev=9", "", 409, "changed meanwhile")
	want("DELETE", "/in/data.csv?if_rev=1", "", 204, "")
	want("DELETE", "/in/data.csv", "", 404, "has no file")
	for _, target := range []string{"/v1/sessions/none/files", "/v1/sessions/none/files/x"} {
		if res := r.do("GET", target, ""); res.StatusCode != 404 || !strings.Contains(string(res.body), "session") {
			t.Errorf("%s: %s %s", target, res.Status, res.body)
		}
	}
}

func TestFileRanges(t *testing.T) {
	r := start(t, nil)
	se := r.session("a").ID
	target := "/v1/sessions/" + string(se) + "/files/digits"
	etag := r.do("PUT", target, "0123456789")
	if etag.StatusCode != 200 {
		t.Fatal(etag.Status)
	}
	tag := r.do("GET", target, "").Header.Get("ETag")
	for _, c := range []struct {
		ask, ifRange string
		status       int
		want         string
	}{
		{"bytes=0-3", "", 206, "0123"}, {"bytes=8-", "", 206, "89"}, {"bytes=8-99", "", 206, "89"}, {"bytes=-3", "", 206, "789"}, {"bytes=-99", "", 206, "0123456789"},
		{"Bytes=9-9", "", 206, "9"}, {"bytes=0-3", tag, 206, "0123"}, {"bytes=0-3", `"old"`, 200, "0123456789"},
		{"bytes=10-", "", 416, ""}, {"bytes=-0", "", 416, ""}, {"bytes=5-4", "", 200, "0123456789"}, {"bytes=0-1,3-4", "", 200, "0123456789"},
		{"lines=1-2", "", 200, "0123456789"}, {"bytes=x", "", 200, "0123456789"}, {"bytes=+1-2", "", 200, "0123456789"}, {"bytes=99999999999999999999-", "", 200, "0123456789"},
	} {
		headers := []string{"Range", c.ask}
		if c.ifRange != "" {
			headers = append(headers, "If-Range", c.ifRange)
		}
		res := r.do("GET", target, "", headers...)
		if res.StatusCode != c.status || c.status != 416 && string(res.body) != c.want {
			t.Errorf("%s: %s %q, want %d %q", c.ask, res.Status, res.body, c.status, c.want)
		}
	}
	if res := r.do("GET", target, "", "Range", "bytes=2-3"); res.Header.Get("Content-Range") != "bytes 2-3/10" || res.Header.Get("Content-Length") != "2" {
		t.Error(res.Header)
	}
}

// A file as large as one may be passes both ways; a byte more is refused, whether the client says so before or not.
func TestLargeFile(t *testing.T) {
	r := start(t, nil)
	se := r.session("a").ID
	ctx := t.Context()
	cl := client.New(r.url, r.token, nil)
	body := bytes.Repeat([]byte("0123456789abcdef"), agent.MaxFile/16)
	f, err := cl.PutFile(ctx, se, "big", "", nil, bytes.NewReader(body), agent.MaxFile)
	if err != nil || f.Size != agent.MaxFile || f.Digest != agent.DigestOf(body) {
		t.Fatal(f, err)
	}
	in, err := cl.File(ctx, se, "big", 0, 0)
	if err != nil || in.Size != agent.MaxFile {
		t.Fatal(in, err)
	}
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, body) {
		t.Error(len(got), err)
	}
	in.Close()
	in, err = cl.File(ctx, se, "big", agent.MaxFile-3, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = io.ReadAll(in); err != nil || string(got) != "def" {
		t.Errorf("%q, %v", got, err)
	}
	in.Close()
	for _, size := range []int64{agent.MaxFile + 1, -1} {
		_, err := cl.PutFile(ctx, se, "bigger", "", nil, bytes.NewReader(append(body, 'x')), size)
		if agent.KindOf(err) != agent.Exhausted {
			t.Errorf("of size %d: %v", size, err)
		}
	}
	// A client that goes in the middle leaves nothing.
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, "PUT /v1/sessions/"+string(se)+"/files/cut HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+r.token+
		"\r\nContent-Length: "+strconv.Itoa(1000)+"\r\n\r\nhalf")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(conn)
	conn.Close()
	if !strings.Contains(string(said), " 400 ") {
		t.Errorf("%s", said)
	}
	if _, err := cl.File(ctx, se, "cut", 0, 0); agent.KindOf(err) != agent.NotFound {
		t.Error(err)
	}
	if list, err := cl.Files(ctx, se, "", agent.Page{}); err != nil || len(list.Items) != 1 {
		t.Error(list, err)
	}
}
