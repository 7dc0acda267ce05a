package egress

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// redirectOf returns where a response redirects to, or "".
func redirectOf(res *http.Response) string {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return res.Header.Get("Location")
	}
	return ""
}

// redirect returns the next hop (fetch standard, "HTTP-redirect fetch"): its URL and its method, and in c what
// of the request goes with it. Whether it may be made is for the guard to say.
func (c *call) redirect(res *http.Response, u *url.URL, from agent.Request, location string) (*url.URL, agent.Request, error) {
	method := from.Method
	switch s := res.StatusCode; {
	case (s == http.StatusMovedPermanently || s == http.StatusFound) && method == http.MethodPost,
		s == http.StatusSeeOther && method != http.MethodGet && method != http.MethodHead:
		method, c.body, c.bare = http.MethodGet, nil, true
	default:
		if err := c.body.replayable(from.Host); err != nil {
			return nil, agent.Request{}, err
		}
	}
	bad := func(kind agent.Kind, why string) (*url.URL, agent.Request, error) {
		return nil, agent.Request{}, agent.Errorf(kind, "%s redirects the request to where it cannot go: %s", from.Host, why)
	}
	location = strings.ReplaceAll(text(location), " ", "%20") // as browsers do
	if plain, err := url.QueryUnescape(location); hasPlaceholder(location) || err == nil && hasPlaceholder(plain) {
		return bad(agent.Denied, "the URL names a secret, and only the agent's own requests may do that")
	}
	if len(location) > c.limits.URL {
		return nil, agent.Request{}, agent.Exceeded(agent.LimitHTTP, "%s redirects the request to a URL of %d bytes, more than %d", from.Host, len(location), c.limits.URL)
	}
	whole := resolve(u, from, location)
	next, to, err := Parse(method, whole)
	if err != nil {
		return bad(agent.Unavailable, agent.AsError(err).Msg)
	}
	if to.Origin() == from.Origin() {
		if c.clean(to.Path) != to.Path {
			return bad(agent.Denied, "the URL's path holds a secret")
		}
		return next, to, nil
	}
	if c.clean(whole) != whole {
		return bad(agent.Denied, "the URL takes a secret to another host") // whose name may be the secret
	}
	c.crossed = true
	return next, to, nil
}

var schemeRE = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// resolve makes a reference whole, for Parse to read. It decides only where the reference begins.
func resolve(u *url.URL, base agent.Request, ref string) string {
	ref, _, _ = strings.Cut(ref, "#")
	query := ""
	if u.RawQuery != "" || u.ForceQuery {
		query = "?" + u.RawQuery
	}
	switch {
	case schemeRE.MatchString(ref):
		return ref
	case strings.HasPrefix(ref, "//"):
		return base.Scheme + ":" + ref
	case strings.HasPrefix(ref, "/"):
		return base.Origin() + ref
	case strings.HasPrefix(ref, "?"):
		return base.URL() + ref
	case ref == "":
		return base.URL() + query
	}
	return base.Origin() + base.Path[:strings.LastIndexByte(base.Path, '/')+1] + ref
}
