package api

import (
	"context"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/runtime"
)

type callRequest struct {
	Agent    string        `path:"name"`
	Function string        `path:"function" doc:"an export, or a method of a script's default export"`
	Type     string        `header:"Content-Type" doc:"of the input; a script gets JSON as a value, text as a string, else bytes"`
	Timeout  time.Duration `header:"Skep-Timeout" doc:"most wall time, such as 1.5s, when less than the agent's limit"`
	Body     []byte        `body:"raw"`
}

// call runs to its end even when the client goes away: fasthttp tells nobody that a client has gone. The wall limit
// bounds it, and Skep-Timeout narrows that.
func (s *Server) call(ctx context.Context, q callRequest) (raw, error) {
	if q.Type == "" {
		q.Type = agent.TypeBytes
	}
	res, err := s.rt.Call(ctx, appOf(ctx), runtime.CallRequest{
		Agent: q.Agent, Function: q.Function, Input: agent.Payload{Type: q.Type, Body: q.Body}, Limits: agent.Limits{Wall: q.Timeout},
	})
	if err != nil {
		return raw{}, err
	}
	return raw{contentType: res.Output.Type, header: usageHeader(res.Usage), body: res.Output.Body}, nil
}

func usageHeader(u agent.Usage) [][2]string {
	ms := func(d time.Duration) string {
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)
	}
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return [][2]string{
		{"Skep-Cpu-Ms", ms(u.CPU)}, {"Skep-Wall-Ms", ms(u.Wall)}, {"Skep-Fuel", n(u.Fuel)}, {"Skep-Memory", n(u.Memory)},
		{"Skep-Host-Calls", n(u.HostCalls)}, {"Skep-In", n(u.In)}, {"Skep-Out", n(u.Out)}, {"Skep-Log", n(u.Log)},
	}
}

type fetchRequest struct {
	Agent   string      `path:"name"`
	Method  string      `meta:"method"`
	URL     string      `meta:"url"`
	Headers [][2]string `meta:"headers"`
	Body    []byte      `body:"raw"`
}

// fetch passes a request to an agent's fetch handler. The handler sees the URL as if it were served at the root.
func (s *Server) fetch(ctx context.Context, q fetchRequest) (raw, error) {
	header, hostname := forwarded(q.Headers)
	if t := telemetry.Traceparent(ctx); t != "" {
		header = append(header, [2]string{"Traceparent", t})
	}
	req := host.Request{Method: q.Method, URL: "http://" + hostname + agentPath(q.URL), Header: header, Body: q.Body}
	if q.Method != http.MethodHead {
		return s.fetchTo(ctx, q.Agent, req)
	}
	return rawOf(s.rt.Fetch(ctx, appOf(ctx), q.Agent, req))
}

// rawOf returns a handler's response as a result.
func rawOf(res host.Response, err error) (raw, error) {
	if err != nil {
		return raw{}, err
	}
	if res.Status < 200 || res.Status > 599 {
		return raw{}, &agent.Error{
			Kind: agent.Failed, Msg: "the fetch handler answered with status " + strconv.Itoa(res.Status),
			Hint: "answer with a status from 200 to 599",
		}
	}
	out := raw{status: res.Status, body: res.Body}
	for _, h := range withoutHop(res.Header) {
		switch textproto.CanonicalMIMEHeaderKey(h[0]) {
		case "Content-Type":
			out.contentType = h[1]
		case "Content-Length", "Request-Id", "Traceparent":
		default:
			out.header = append(out.header, h)
		}
	}
	return out, nil
}

// agentPath is what follows /v1/agents/{name}/http in a request target, query string and escapes as they were sent.
func agentPath(target string) string {
	for range 4 { // v1, agents, the name, http
		_, target, _ = strings.Cut(strings.TrimPrefix(target, "/"), "/")
		target = "/" + target
	}
	return target
}

// forwarded returns the headers an agent may see, and the name it was called by.
func forwarded(in [][2]string) (out [][2]string, hostname string) {
	hostname = "localhost"
	for _, h := range withoutHop(in) {
		switch textproto.CanonicalMIMEHeaderKey(h[0]) {
		case "Authorization", headerApp, runtime.HeaderAgent, "Traceparent": // the agent is a step of its own in the trace
		case "Host":
			hostname = h[1]
			out = append(out, h)
		default:
			out = append(out, h)
		}
	}
	return out, hostname
}

// hopByHop lists the headers that are about one connection (RFC 9110, section 7.6.1).
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

func withoutHop(in [][2]string) [][2]string {
	named := map[string]bool{} // by a Connection header
	for _, h := range in {
		if http.CanonicalHeaderKey(h[0]) == "Connection" {
			for name := range strings.SplitSeq(h[1], ",") {
				named[textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))] = true
			}
		}
	}
	out := make([][2]string, 0, len(in))
	for _, h := range in {
		if name := textproto.CanonicalMIMEHeaderKey(h[0]); !hopByHop(name) && !named[name] && validHeader(h) {
			out = append(out, h)
		}
	}
	return out
}

// validHeader keeps what a guest says from splitting the response.
func validHeader(h [2]string) bool {
	if h[0] == "" || strings.ContainsAny(h[0], " \t\r\n:\x00") {
		return false
	}
	return !strings.ContainsAny(h[1], "\r\n\x00")
}
