package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
)

// problem is an error as application/problem+json (RFC 9457).
type problem struct {
	Type     string      `json:"type" doc:"urn:skep:error: and the kind"`
	Title    string      `json:"title" doc:"the phrase of the status"`
	Status   int         `json:"status"`
	Detail   string      `json:"detail" doc:"what went wrong"`
	Kind     agent.Kind  `json:"kind" doc:"what a caller can do about it; stable"`
	Hint     string      `json:"hint,omitempty" doc:"what to do, in a sentence"`
	Limit    agent.Limit `json:"limit,omitzero" doc:"the limit that was hit"`
	Position *agent.Pos  `json:"position,omitempty" doc:"where in the author's source"`
	Stack    string      `json:"stack,omitempty" doc:"the author's stack trace, one frame a line"`
	Instance string      `json:"instance" doc:"id of the request, for a search of the server's log"`

	after time.Duration // 0 means that nobody knows
}

const (
	typeProblem   = "application/problem+json"
	problemPrefix = "urn:skep:error:"

	// statusCancelled is what nginx answers in its log when the client closed the request; no standard status says it.
	statusCancelled = 499
)

// statusError is an error whose status is about HTTP itself, which no kind tells: a method, a media type.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func invalidAs(status int, msg, hint string) error {
	return &statusError{status, &agent.Error{Kind: agent.Invalid, Msg: msg, Hint: hint}}
}

// kindStatus is the table from kinds to HTTP statuses.
func kindStatus(k agent.Kind, l agent.Limit) int {
	switch k {
	case agent.Invalid:
		return http.StatusBadRequest
	case agent.Unauthenticated:
		return http.StatusUnauthorized
	case agent.Denied:
		return http.StatusForbidden
	case agent.NotFound:
		return http.StatusNotFound
	case agent.Exists, agent.Conflict:
		return http.StatusConflict
	case agent.Exhausted:
		switch l {
		case agent.LimitInput, agent.LimitUpload, agent.LimitModule:
			return http.StatusRequestEntityTooLarge
		}
		return http.StatusTooManyRequests
	case agent.Unavailable:
		return http.StatusServiceUnavailable
	case agent.Failed:
		return http.StatusBadGateway
	case agent.Cancelled:
		return statusCancelled
	}
	return http.StatusInternalServerError
}

// problemOf returns what a caller learns of err, which is not nil. The text of an internal error stays here.
func problemOf(err error, requestID string) problem {
	e := agent.AsError(err)
	if e.Kind == agent.Internal && errors.Is(err, context.Canceled) { // the server stops, or the client has gone
		e = &agent.Error{Kind: agent.Cancelled, Msg: "the request was stopped", Err: err}
	}
	status := kindStatus(e.Kind, e.Limit)
	if se, ok := errors.AsType[*statusError](err); ok {
		status = se.status
	}
	p := problem{
		Type: problemPrefix + e.Kind.String(), Title: http.StatusText(status), Status: status, Kind: e.Kind, Instance: requestID,
	}
	if status == statusCancelled {
		p.Title = "Client Closed Request"
	}
	if e.Kind == agent.Internal {
		p.Detail = "internal error"
		p.Hint = "the server's log has the cause under request id " + requestID
		return p
	}
	p.Detail, p.Hint, p.Limit, p.Stack, p.after = e.Msg, e.Hint, e.Limit, e.Stack, e.After
	if e.Pos != (agent.Pos{}) {
		p.Position = &e.Pos
	}
	return p
}

func (p problem) encode() []byte {
	b, err := json.Marshal(p)
	if err != nil { // unreachable: every field marshals
		panic(err)
	}
	return b
}

// worthRetrying reports whether the same request may succeed later: not when it hit a limit on what one call may use.
func (p problem) worthRetrying() bool {
	switch p.Status {
	case http.StatusServiceUnavailable:
		return true
	case http.StatusTooManyRequests:
		switch p.Limit {
		case agent.NoLimit, agent.LimitConcurrency, agent.LimitQuota, agent.LimitRate:
			return true
		}
	}
	return false
}

// retryAfter is the number of seconds after which to try again: a second at least (RFC 9110, section 10.2.3).
func (p problem) retryAfter() string {
	return strconv.FormatInt(max(int64((p.after+time.Second-1)/time.Second), 1), 10)
}
