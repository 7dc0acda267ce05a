package egress

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// Headers of a request that are about the connection, not about the request. Most code that sets the dropped ones does so by
// habit, and means what is done anyway; who sets a refused one means to have the request end somewhere else than it does.
var (
	dropped = []string{"Accept-Encoding", "Connection", "Content-Length", "Expect", "Keep-Alive", "Te"}
	refused = []string{"Http2-Settings", "Proxy", "Trailer", "Transfer-Encoding", "Upgrade"} // and Proxy-*

	// crossing are the headers that do not follow a redirect to another origin, with those that hold a placeholder.
	crossing = []string{"Authorization", "Cookie", "Cookie2", "Origin", "Referer"}

	// ofBody are the headers that go with a body (fetch standard, "request-body-header name").
	ofBody = []string{"Content-Encoding", "Content-Language", "Content-Location", "Content-Type"}

	// ofConnection are the headers of a response that end here.
	ofConnection = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
)

// placeholder begins what stands for a secret.
const placeholder = "{{secret:"

// requestHeader checks the headers of a request, and returns those that are sent. host is what the URL says.
func requestHeader(list [][2]string, host string, l *Limits) (http.Header, error) {
	if len(list) > l.RequestHeaders {
		return nil, agent.Exceeded(agent.LimitHTTP, "the request has %d headers, more than %d", len(list), l.RequestHeaders)
	}
	h := make(http.Header, len(list)+2)
	room := make([]string, 0, len(list)) // for all values that stand alone
	var size int64
	for _, kv := range list {
		name, value := kv[0], strings.Trim(kv[1], " \t")
		if size += int64(len(name) + len(value)); size > l.RequestHeader {
			return nil, agent.Exceeded(agent.LimitHTTP, "the request's headers have more than %d bytes", l.RequestHeader)
		}
		if !isToken(name) {
			return nil, agent.Errorf(agent.Invalid, "%.60q is not a header's name", name)
		}
		if !isValue(value) {
			return nil, agent.Errorf(agent.Invalid, "the value of header %.60s holds a control character", name)
		}
		key := http.CanonicalHeaderKey(name)
		meant := key // some servers take an underscore for a hyphen
		if strings.Contains(key, "_") {
			meant = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		}
		switch {
		case meant == "Host":
			if key != meant || !strings.EqualFold(value, host) {
				return nil, &agent.Error{Kind: agent.Invalid, Msg: "the header Host names another host than the URL", Hint: "leave it out"}
			}
		case strings.HasPrefix(meant, "Proxy-"), slices.Contains(refused, meant):
			return nil, &agent.Error{Kind: agent.Invalid, Msg: "the header " + meant + " is not for requests of agents", Hint: "leave it out"}
		case slices.Contains(dropped, meant):
		default:
			if values, more := h[key]; more {
				h[key] = append(values, value)
				continue
			}
			room = append(room, value)
			h[key] = room[len(room)-1 : len(room) : len(room)]
		}
	}
	if _, named := h["User-Agent"]; !named {
		h["User-Agent"] = agentHeader
	}
	return h, nil
}

var agentHeader = []string{"Skep"}

// headerAgain returns the headers of a request once more, without those that redirects took away. Once it went to another
// origin, what was not for that does not come back.
func (c *call) headerAgain() http.Header {
	h, _ := requestHeader(c.req.Header, c.host, c.limits) // they were checked
	if c.bare {
		for _, name := range ofBody {
			delete(h, name)
		}
	}
	if c.crossed {
		for _, name := range crossing {
			delete(h, name)
		}
		for name, values := range h {
			if slices.ContainsFunc(values, hasPlaceholder) {
				delete(h, name)
			}
		}
	}
	return h
}

func hasPlaceholder(s string) bool { return strings.Contains(strings.ToLower(s), placeholder) }

// responseHeader checks, cleans and sorts the headers of a response. decoded says that the body's encoding is undone.
func (c *call) responseHeader(h http.Header, host string, decoded bool) ([][2]string, error) {
	list := make([][2]string, 0, len(h))
	var size int64
	for name, values := range h {
		if slices.Contains(ofConnection, name) || name == "Content-Encoding" && decoded || name == "Content-Length" && (decoded || c.cleaner != nil) {
			continue
		}
		lower := lowerName(name)
		if c.clean(name) != name || c.clean(lower) != lower {
			continue
		}
		for _, v := range values {
			if !isToken(name) || !isValue(v) {
				return nil, unavailable(nil, host, "the response has a header that is not valid")
			}
			if size += int64(len(name) + len(v)); size > c.limits.ResponseHeader {
				return nil, c.headerTooLarge(host)
			}
			list = append(list, [2]string{lower, c.clean(text(v))})
		}
		if len(list) > c.limits.ResponseHeaders {
			return nil, agent.Exceeded(agent.LimitHTTP, "%s: the response has more than %d headers", host, c.limits.ResponseHeaders)
		}
	}
	slices.SortStableFunc(list, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return list, nil
}

// lowerName is strings.ToLower, without memory for the names that nearly every response has.
func lowerName(name string) string {
	switch name {
	case "Content-Type":
		return "content-type"
	case "Content-Length":
		return "content-length"
	case "Date":
		return "date"
	case "Server":
		return "server"
	case "Cache-Control":
		return "cache-control"
	}
	return strings.ToLower(name)
}

func (c *call) headerTooLarge(host string) error {
	return agent.Exceeded(agent.LimitHTTP, "%s: the response's header has more than %d bytes", host, c.limits.ResponseHeader)
}

func (c *call) clean(s string) string {
	if c.cleaner == nil {
		return s
	}
	return c.cleaner.String(s)
}

// statusText returns what follows the number in a status line such as "404 Not Found".
func (c *call) statusText(status string) string {
	_, s, _ := strings.Cut(status, " ")
	if !isValue(s) || len(s) > 200 {
		return ""
	}
	return c.clean(text(s))
}

// text returns a header's value as UTF-8: values that are not are taken for ISO 8859-1 (RFC 9110, section 5.5).
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	rs := make([]rune, len(s))
	for i := range len(s) {
		rs[i] = rune(s[i])
	}
	return string(rs)
}

// isToken is RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if !tokenByte[s[i]] {
			return false
		}
	}
	return s != "" && len(s) <= 256
}

var tokenByte = func() (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~") {
		set[c] = true
	}
	return set
}()

func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
