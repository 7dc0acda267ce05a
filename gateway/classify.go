package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// keyAction is what a fault means for the key that was used.
type keyAction uint8

const (
	keepKey   keyAction = iota
	limitKey            // not for a while
	refuseKey           // not until the account is put right
)

// action is what is done after a fault of a class, as long as the client has got nothing yet.
type action struct {
	same  int  // how often the same candidate may be asked again
	other bool // another key or candidate may be asked
	key   keyAction
	sick  bool // it counts for the provider's breaker
}

// actionOf is the table from classes to actions. What a route adds to it is in actionFor.
func actionOf(c agent.FaultClass) action {
	switch c {
	case agent.RateLimited:
		return action{same: 2, other: true, key: limitKey}
	case agent.QuotaExhausted, agent.AuthFault:
		return action{other: true, key: refuseKey}
	case agent.Overloaded:
		return action{same: 2, other: true, sick: true}
	case agent.ServerFault, agent.StreamBroken:
		return action{same: 1, other: true, sick: true}
	case agent.InvalidRequest, agent.ContextLength, agent.ContentFault, agent.ClientAbort, agent.NoFault:
	}
	return action{}
}

func (x *exchange) actionFor(f *wire.Fault) action {
	a := actionOf(f.Class)
	if x.plan.route != nil {
		for _, c := range x.plan.route.FailOver {
			a.other = a.other || c == f.Class
		}
	}
	switch {
	case f.Class == agent.ClientAbort:
	case f.Final != nil && *f.Final: // the provider says not to try it again
		a.same = 0
	case f.Final != nil && a.key != refuseKey:
		a.same = max(a.same, 1)
	}
	if x.retry > 0 { // the client tries again itself
		a.same = 0
	}
	return a
}

var (
	errHeaders  = errors.New("no answer came in time")
	errIdle     = errors.New("the stream fell silent")
	errDeadline = errors.New("the time for this request is over")
	errGone     = agent.Errorf(agent.Cancelled, "the client has gone")
)

// faultOf says what a call that got no whole answer is: err is what ended it, ctx the call's.
func (x *exchange) faultOf(ctx context.Context, p *provider, err error, streaming bool) *wire.Fault {
	f := &wire.Fault{Class: agent.ServerFault, Status: http.StatusBadGateway, Type: "upstream_error"}
	cause := context.Cause(ctx)
	switch {
	case x.gone(), errors.Is(cause, errGone):
		return &wire.Fault{Class: agent.ClientAbort, Status: 499, Message: errGone.Error()}
	case errors.Is(cause, errHeaders):
		f.Status, f.Type, f.Message = http.StatusGatewayTimeout, "timeout", "the provider "+p.Name+" did not answer in time"
	case errors.Is(cause, errIdle):
		f.Class, f.Status, f.Type, f.Message = agent.StreamBroken, http.StatusGatewayTimeout, "timeout", "the provider "+p.Name+" fell silent in the middle of its answer"
	case errors.Is(cause, errDeadline):
		f.Status, f.Type, f.Message = http.StatusGatewayTimeout, "timeout", "the time for this request is over, and the provider "+p.Name+" had not answered"
	case streaming:
		f.Class, f.Message = agent.StreamBroken, "the answer of the provider "+p.Name+" ended in the middle"
	default:
		f.Message = "the provider " + p.Name + " could not be reached"
		if e, ok := errors.AsType[*agent.Error](err); ok { // of the way out: its text is safe to show
			f.Message += ": " + e.Msg
			if e.Hint != "" {
				f.Message += " (" + e.Hint + ")"
			}
		}
	}
	return f
}

// unsent reports whether err says that nothing of a request has left.
func unsent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	_, ok := errors.AsType[*agent.Error](err)
	return ok
}

// ownFault is a refusal of the gateway's own as a client is told it.
func ownFault(err error) *wire.Fault {
	if f, ok := errors.AsType[*wire.Fault](err); ok {
		return f
	}
	e := agent.AsError(err)
	f := &wire.Fault{Own: true, Message: e.Msg, After: e.After}
	if e.Hint != "" {
		f.Message += ": " + e.Hint
	}
	f.Class, f.Status, f.Type = agent.InvalidRequest, http.StatusBadRequest, "invalid_request_error"
	switch e.Kind {
	case agent.Unauthenticated:
		f.Class, f.Status, f.Type = agent.AuthFault, http.StatusUnauthorized, "authentication_error"
	case agent.Denied:
		f.Class, f.Status, f.Type = agent.AuthFault, http.StatusForbidden, "permission_error"
	case agent.NotFound:
		f.Status, f.Type, f.Code = http.StatusNotFound, "not_found_error", "model_not_found"
	case agent.Exhausted:
		if e.Limit == agent.LimitInput {
			f.Status = http.StatusRequestEntityTooLarge
			break
		}
		f.Class, f.Status, f.Type = agent.RateLimited, http.StatusTooManyRequests, "rate_limit_error"
	case agent.Unavailable:
		f.Class, f.Status, f.Type = agent.Overloaded, http.StatusServiceUnavailable, "overloaded_error"
	case agent.Cancelled:
		f.Class, f.Status = agent.ClientAbort, 499
	case agent.Internal, agent.Failed:
		f.Class, f.Status, f.Type = agent.ServerFault, http.StatusInternalServerError, "api_error"
	}
	return f
}

// errorOf is a fault as guests are told it.
func errorOf(f *wire.Fault) *agent.Error {
	e := &agent.Error{Kind: kindOf(f), Msg: f.Message, After: f.After}
	if e.Msg == "" {
		e.Msg = "the model's provider failed: " + f.Class.String()
	}
	return e
}

func kindOf(f *wire.Fault) agent.Kind {
	switch f.Class {
	case agent.RateLimited, agent.QuotaExhausted:
		return agent.Exhausted
	case agent.Overloaded, agent.ServerFault, agent.StreamBroken:
		if f.Own && f.Status == http.StatusInternalServerError {
			return agent.Internal
		}
		return agent.Unavailable
	case agent.AuthFault, agent.ContentFault:
		if f.Own && f.Status == http.StatusUnauthorized {
			return agent.Unauthenticated
		}
		return agent.Denied
	case agent.ClientAbort:
		return agent.Cancelled
	case agent.InvalidRequest, agent.ContextLength, agent.NoFault:
		if f.Status == http.StatusNotFound {
			return agent.NotFound
		}
	}
	return agent.Invalid
}

// seconds is a wait as Retry-After has it.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
