package extism

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// maxRequestMeta bounds the URL and headers of a request.
const maxRequestMeta = 1 << 20

// httpRequest makes an outbound request. An Extism module has no way to hear that one was refused, so that ends the call,
// with the host's reason. The blocks stay the guest's: PDKs free them after the call, and if that had been done here, the
// response could lie in one of them and be freed in its stead.
func httpRequest(c *cell.Cell, g *guest, a []uint64) {
	g.status, g.headers = 0, nil
	meta, body := g.text(c, a[0]), []byte(g.text(c, a[1]))
	if len(meta) > maxRequestMeta {
		c.Fail(agent.Errorf(agent.Failed, "an HTTP request has %d bytes of URL and headers, more than %d", len(meta), maxRequestMeta))
	}
	var asked struct {
		URL     string
		Method  string
		Headers map[string]string
	}
	if err := json.Unmarshal([]byte(meta), &asked); err != nil {
		c.Fail(agent.Errorf(agent.Failed, "the code passed an HTTP request that is not valid: %v", err))
	}
	req := abi.HTTPRequest{Method: strings.ToUpper(asked.Method), URL: asked.URL, Body: body}
	if req.Method == "" {
		req.Method = "GET"
	}
	for _, k := range slices.Sorted(maps.Keys(asked.Headers)) {
		req.Header = append(req.Header, [2]string{k, asked.Headers[k]})
	}
	var resp abi.HTTPResponse
	if err := ask(c, abi.CallHTTP, req, &resp); err != nil {
		c.Fail(requestError(asked.URL, err))
	}
	g.status = resp.Status
	g.headers = joinHeaders(resp.Header)
	a[0] = g.put(c, resp.Body)
}

// ask passes one of package abi's calls to the host.
func ask(c *cell.Cell, name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	reply, err := c.AskNext(name, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply, out)
}

// requestError says which request failed, in the words that Extism's own hosts have for it.
func requestError(url string, err error) error {
	e := *agent.AsError(err)
	what := "HTTP request to '%.500s' failed: %s"
	if e.Kind == agent.Denied {
		what = "HTTP request to '%.500s' is not allowed: %s"
	}
	wrapped := agent.AsError(agent.Errorf(e.Kind, what, url, e.Msg))
	wrapped.Err, wrapped.Hint, wrapped.Limit = e.Err, e.Hint, e.Limit
	return wrapped
}

// joinHeaders gives headers the form in which Extism passes them: lower case, values joined.
func joinHeaders(hs [][2]string) map[string]string {
	m := map[string]string{}
	for _, h := range hs {
		k := strings.ToLower(h[0])
		if old, ok := m[k]; ok {
			m[k] = old + "," + h[1]
		} else {
			m[k] = h[1]
		}
	}
	return m
}

func httpHeaders(c *cell.Cell, g *guest, a []uint64) {
	a[0] = 0
	if g.headers == nil {
		return
	}
	b, err := json.Marshal(g.headers)
	if err != nil {
		c.Fail(agent.Wrap(agent.Internal, err, "internal error"))
	}
	a[0] = g.put(c, b)
}
