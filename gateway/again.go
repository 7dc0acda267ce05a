package gateway

import (
	"net/http"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// again is the fault of an answer that is nothing but a call of a tool that cannot be read (wire.StopBroken), where asking once more is left to do; nil for all
// others, which are told as they are. said reports whether the answer has any content.
func (x *exchange) again(l *call, stop wire.Stop, said bool) *wire.Fault {
	if stop != wire.StopBroken || said || x.content || x.reasked || x.retry > 0 || x.attempts >= x.plan.attempts {
		return nil
	}
	x.reasked = true
	return &wire.Fault{
		Class: agent.StreamBroken, Status: http.StatusBadGateway, Type: "upstream_error",
		Message: "the answer of the provider " + l.c.p.Name + " is a call of a tool that cannot be read",
	}
}
