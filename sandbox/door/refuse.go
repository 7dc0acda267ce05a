package door

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// statusOf is the answer to a request by the proxy that failed here. What the host itself answers has no Proxy-Status.
func statusOf(err error) int {
	e := agent.AsError(err)
	switch e.Kind {
	case agent.Denied:
		return http.StatusForbidden
	case agent.Invalid:
		return http.StatusBadRequest
	case agent.Unauthenticated:
		return http.StatusUnauthorized
	case agent.NotFound:
		return http.StatusNotFound
	case agent.Exhausted:
		if e.Limit == agent.LimitHTTP && e.After == 0 { // something is too large
			return http.StatusRequestEntityTooLarge
		}
		return http.StatusTooManyRequests
	case agent.Unavailable, agent.Failed, agent.Cancelled:
		return http.StatusBadGateway
	case agent.Exists, agent.Conflict:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// proxyErrors are the types of RFC 9209, section 2.3, by status; the others are proxy_internal_error.
var proxyErrors = map[int]string{
	http.StatusForbidden: "http_request_denied", http.StatusBadRequest: "http_request_error", http.StatusNotFound: "http_request_error",
	http.StatusTooManyRequests: "connection_limit_reached", http.StatusRequestEntityTooLarge: "http_request_error", http.StatusBadGateway: "destination_unavailable",
}

// text is an error in the words that whoever is in the box reads.
func text(err error) string {
	e := agent.AsError(err)
	out := "skep: " + e.Msg + "\n"
	if e.Hint != "" {
		out += e.Hint + "\n"
	}
	return out
}

// answer tells the client of an error.
func answer(w http.ResponseWriter, err error) {
	status := statusOf(err)
	kind := proxyErrors[status]
	if kind == "" {
		kind = "proxy_internal_error"
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Proxy-Status", "skep; error="+kind)
	if after := agent.AsError(err).After; after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text(err)))
}

// refuse answers a request by the proxy with an error, and tells of it what was not allowed.
func (d *Door) refuse(w http.ResponseWriter, r *http.Request, what string, err error) {
	d.tell(r.Context(), what, err)
	answer(w, err)
}

// tell tells of what the box asked for and may not have.
func (d *Door) tell(ctx context.Context, what string, err error) {
	e := agent.AsError(err)
	switch {
	case e.Kind == agent.Denied, e.Kind == agent.Invalid, e.Kind == agent.Exhausted && e.Limit == agent.LimitRate:
	default:
		if e.Kind == agent.Internal {
			d.o.Log.ErrorContext(ctx, "a request of a sandbox", "sandbox", d.o.Box, "error", err)
		}
		return
	}
	if d.o.Refused == nil {
		return
	}
	what = printable(what)
	if more, ok := d.told.admit(what+" "+e.Msg, time.Now()); ok {
		d.o.Refused(context.WithoutCancel(ctx), agent.Refusal{Grant: "http", What: what, Reason: e.Msg, More: more})
	}
}

// printable is what a log may hold of what the box asked for: no query, no user, no control characters.
func printable(s string) string {
	method, url, _ := strings.Cut(s, " ")
	url, _, _ = strings.Cut(url, "?")
	url, _, _ = strings.Cut(url, "#")
	if i := strings.LastIndexByte(url, '@'); i >= 0 {
		url = "..." + url[i:]
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(fmt.Sprintf("%.32s %s", method, url), ""))
	return phrase.Clip(s, 500)
}

// What a box may have told of it.
const (
	toldEvery = time.Minute
	toldMost  = 20 // of all kinds within toldEvery; of one kind, one
)

// told holds back what was told already.
type told struct {
	mu    sync.Mutex
	since time.Time
	heard map[string]bool
	held  int64 // not told, and not yet counted in one that was
}

func (t *told) admit(what string, now time.Time) (more int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.heard == nil || now.Sub(t.since) >= toldEvery {
		t.since, t.heard = now, map[string]bool{}
	}
	if t.heard[what] || len(t.heard) >= toldMost {
		t.held++
		return 0, false
	}
	t.heard[what] = true
	more, t.held = t.held, 0
	return more, true
}
