// Package http grants outbound requests. Hosts cannot be granted yet, so it refuses each request and says why.
package http

import (
	"context"
	"net/url"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// New returns the handler of abi.CallHTTP for an agent to which no host is granted.
func New(name string) grant.Handler {
	return grant.JSON(func(_ context.Context, in abi.HTTPRequest) (abi.HTTPResponse, error) {
		u, err := url.Parse(in.URL)
		if err != nil || u.Host == "" {
			return abi.HTTPResponse{}, agent.Errorf(agent.Invalid, "%.200q is not an absolute URL", in.URL)
		}
		return abi.HTTPResponse{}, &agent.Error{
			Kind: agent.Denied,
			Msg:  "no host is granted to " + name + ", so it may not reach " + u.Host,
			Hint: "outbound requests cannot be granted in this version: pass what the code needs as its input",
		}
	})
}
