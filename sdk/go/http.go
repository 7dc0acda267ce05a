package skep

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/abi"
)

// Request is an outbound request. An agent may make those that it was granted.
type Request struct {
	Method string // "" means GET
	URL    string
	Header [][2]string
	Body   []byte
}

// Response answers a Request. Redirects have been followed, and the body is decoded.
type Response struct {
	Status int
	Header [][2]string
	Body   []byte
}

// Get returns the values of a header, joined by commas; "" when there is none. The name's case does not matter.
func (r *Response) Get(name string) string {
	var values []string
	for _, h := range r.Header {
		if strings.EqualFold(h[0], name) {
			values = append(values, h[1])
		}
	}
	return strings.Join(values, ", ")
}

// Fetch makes a request and returns the whole response, whatever its status. Its error is a *CallError when the request was
// refused or failed.
func Fetch(r Request) (*Response, error) {
	in, err := json.Marshal(abi.HTTPRequest{Method: orGet(r.Method), URL: r.URL, Header: r.Header, Body: r.Body})
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", r.URL, err)
	}
	b, err := reply(hostCall(abi.CallHTTP, in))
	if err != nil {
		return nil, err
	}
	var out abi.HTTPResponse
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("fetch %s: the response: %w", r.URL, err)
	}
	return &Response{Status: out.Status, Header: out.Header, Body: out.Body}, nil
}

func orGet(method string) string {
	if method == "" {
		return "GET"
	}
	return method
}

// Secret returns the placeholder of a secret: {{secret:NAME}}. Write it where the secret belongs in a request: as a header's
// value or in it, as a query parameter, as a form field or as a string in a JSON body. The host puts the value in on the
// way out, where the secret is bound to and was granted, and nowhere else; the agent never sees it. Secret panics on a name
// that no secret can have.
func Secret(name string) string {
	inner := func(r rune) bool { return strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789._-", r) }
	if name == "" || len(name) > 63 || strings.Trim(name, "._-") != name || strings.TrimFunc(name, inner) != "" {
		panic(fmt.Sprintf("skep: %.80q is not the name of a secret: it has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins and ends with a letter or digit", name))
	}
	return "{{secret:" + name + "}}"
}
