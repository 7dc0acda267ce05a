package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// TestFetchInPieces has a handler that makes each piece when the client has had the one before.
func TestFetchInPieces(t *testing.T) {
	r := start(t, nil)
	next, gone := make(chan string), make(chan error, 1)
	r.cells.OnFetch = func(ctx context.Context, c host.Call, req host.Request) (host.Response, error) {
		head, err := json.Marshal(abi.HTTPReply{Status: 207, Header: [][2]string{{"content-type", "text/event-stream"}, {"set-cookie", "a=1"}, {"set-cookie", "b=2"}, {"connection", "close"}}})
		if err != nil {
			return host.Response{}, err
		}
		if strings.HasSuffix(req.URL, "/nonsense") {
			head = []byte(`{"status":42}`)
		}
		if _, err := c.Calls(ctx, abi.CallReply, head); err != nil {
			return host.Response{}, err
		}
		for {
			select {
			case s, more := <-next:
				if !more {
					return host.Response{Status: 200}, nil
				}
				if s == "fail" {
					return host.Response{}, agent.Errorf(agent.Failed, "broken")
				}
				if _, err := c.Calls(ctx, abi.CallReplyWrite, []byte(s)); err != nil {
					gone <- err
					return host.Response{}, err
				}
			case <-ctx.Done():
				gone <- ctx.Err()
				return host.Response{}, ctx.Err()
			}
		}
	}
	r.agent("a")
	ask := func(ctx context.Context, path string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/v1/agents/a/http/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	res := ask(t.Context(), "events")
	if res.StatusCode != 207 || res.Header.Get("Content-Type") != "text/event-stream" || len(res.Header.Values("Set-Cookie")) != 2 || res.Header.Get("Request-Id") == "" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	lines := bufio.NewReader(res.Body)
	for _, s := range []string{"one\n", "two\n"} {
		next <- s
		if got, err := lines.ReadString('\n'); err != nil || got != s {
			t.Errorf("%q, %v", got, err)
		}
	}
	next <- "three"
	go func() { next <- "fail" }()
	if got, err := io.ReadAll(lines); err == nil || string(got) != "three" {
		t.Errorf("a stream that fails: %q, %v", got, err)
	}

	next2 := next
	res = ask(t.Context(), "whole")
	go func() {
		next2 <- "all"
		close(next2)
	}()
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != "all" {
		t.Errorf("a stream that ends: %q, %v", got, err)
	}

	next = make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	res = ask(ctx, "left")
	next <- "x"
	if _, err := res.Body.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	cancel()
	for left := false; !left; {
		select {
		case next <- strings.Repeat("x", 1<<20): // what shows that the client has gone is a write
		case <-gone:
			left = true
		}
	}
	if res := ask(t.Context(), "nonsense"); res.StatusCode != 400 && res.StatusCode != 502 {
		t.Errorf("a status that is none: %d", res.StatusCode)
	}
}
