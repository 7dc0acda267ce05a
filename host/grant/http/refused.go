package http

import (
	"context"
	"net/url"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// Refused returns what answers the calls of code to which no host is granted, and cannot be. name says whose code it is.
func Refused(name string) map[string]grant.Handler {
	refuse := func(target string) error {
		u, err := url.Parse(target)
		if err != nil || u.Host == "" {
			return agent.Errorf(agent.Invalid, "%.200q is not an absolute URL", target)
		}
		return &agent.Error{
			Kind: agent.Denied, Msg: "no host is granted to " + name + ", so it may not reach " + u.Host,
			Hint: "pass what the code needs as its input, or make it an agent and grant the host to that",
		}
	}
	return map[string]grant.Handler{
		abi.CallHTTP: grant.JSON(func(_ context.Context, in abi.HTTPRequest) (grant.None, error) {
			return grant.None{}, refuse(in.URL)
		}),
		abi.CallHTTPOpen: func(_ context.Context, frame []byte) ([]byte, error) {
			head, _, err := abi.SplitHTTPHead(frame)
			if err != nil {
				return nil, invalid(err)
			}
			var in abi.HTTPOpen
			if err := grant.Decode(head, &in); err != nil {
				return nil, err
			}
			return nil, refuse(in.URL)
		},
	}
}
