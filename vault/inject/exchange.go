package inject

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

const (
	exchangeTime  = 15 * time.Second // of one request for a token
	exchangeBytes = 64 << 10         // of its answer
)

// ask makes one request for a token, once that is written down, and returns the answer. What is in the cleaner is in none of its errors.
func (i *Injector) ask(ctx context.Context, use Use, o *opened, r *http.Request, clean *scrub.Scrubber) (status int, body []byte, err error) {
	if i.exchange == nil {
		return 0, nil, o.failed("is not set up here", "", nil)
	}
	if err := use.audit(ctx, o.Secret, r.Method, r.URL.Host, r.URL.EscapedPath(), agent.PlaceExchange); err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	resp, err := i.exchange.Do(r.WithContext(ctx))
	if err != nil {
		return 0, nil, o.failed("with "+r.URL.Host+" failed", clean.String(err.Error()), ctx.Err())
	}
	defer func() { _ = resp.Body.Close() }() // what it says comes too late to matter
	body, err = io.ReadAll(io.LimitReader(resp.Body, exchangeBytes+1))
	if err != nil {
		return 0, nil, o.failed("with "+r.URL.Host+" failed", clean.String(err.Error()), ctx.Err())
	}
	if len(body) > exchangeBytes {
		return 0, nil, o.failed("with "+r.URL.Host+" got an answer of more than 64 KiB", "", nil)
	}
	return resp.StatusCode, body, nil
}

// failed is the error of an exchange: Unavailable, with what happened for the log and, when it was one, the end of the context.
func (o *opened) failed(what, cause string, ctx error) error {
	var err error
	if cause != "" || ctx != nil {
		err = errors.Join(errors.New(cause), ctx)
	}
	return agent.Wrap(agent.Unavailable, err, "the exchange of the secret "+quote(o.Secret.Name)+" for a token "+what)
}

// endpoint checks an address that a secret is sent to: over TLS, unless it stays on this machine.
func (o *opened) endpoint(field, address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
		return nil, o.broken("has a " + field + " that is not a plain URL")
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme != "https" && !(u.Scheme == "http" && (u.Hostname() == "localhost" || ip.IsLoopback())) {
		return nil, o.broken("has a " + field + " that is not https")
	}
	return u, nil
}
