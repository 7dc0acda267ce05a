package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A server that is still being fetched when it is added is waited for, and shown as it is then.
func TestToolsAddWaitsForStart(t *testing.T) {
	for _, end := range []struct{ status, want string }{
		{`{"server":"slow","state":"ready","tools":1}`, "added server slow with 1 tool: 1 read\n"},
		{`{"server":"slow","state":"failed","error":"no such package"}`, "added server slow, which is failed\n"},
	} {
		var looks atomic.Int32
		status := func() string {
			if looks.Load() < 2 {
				return `{"server":"slow","state":"starting"}`
			}
			return end.status
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.Method + " " + r.URL.Path {
			case "POST /v1/tools/servers":
				w.WriteHeader(http.StatusCreated)
				fmt.Fprintf(w, `{"name":"slow","kind":"stdio","status":%s}`, status())
			case "GET /v1/tools/servers/slow":
				looks.Add(1)
				fmt.Fprintf(w, `{"name":"slow","kind":"stdio","status":%s}`, status())
			case "GET /v1/tools":
				items := "[]"
				if looks.Load() >= 2 {
					items = `[{"name":"slow.look","server":"slow","method":"look","effect":"read"}]`
				}
				fmt.Fprintf(w, `{"items":%s}`, items)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		t.Setenv("SKEP_URL", server.URL)
		t.Setenv("SKEP_TOKEN", "token")
		var out, notes bytes.Buffer
		code := run(t.Context(), []string{"tools", "add", "slow", "--", "npx", "slow"}, strings.NewReader(""), &out, &notes)
		server.Close()
		if code != 0 || out.String() != end.want {
			t.Errorf("exit code %d, printed %q, want %q\n%s", code, out.String(), end.want, notes.String())
		}
		if n := strings.Count(notes.String(), "slow is still starting"); n != 1 {
			t.Errorf("it was said %d times that one has to wait:\n%s", n, notes.String())
		}
	}
}
