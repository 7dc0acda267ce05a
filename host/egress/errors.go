package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/skep-dev/skep/agent"
)

// The errors of this package are said in words of our own. What libraries say can hold a query, or text of the other side that
// repeats a secret; of them only an errno or a resolver's answer is kept, for the log.

func unavailable(err error, host, what string) error {
	e := &agent.Error{Kind: agent.Unavailable, Msg: host + ": " + what}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Err = errno
	}
	return e
}

// lookupError says why a name has no addresses.
func lookupError(host string, err error) error {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return &agent.Error{Kind: agent.Unavailable, Msg: host + ": there is no such name", Hint: "check how the host is spelt"}
	case errors.As(err, &dns) && dns.IsTimeout:
		return unavailable(err, host, "the name server did not answer in time")
	case errors.Is(err, context.Canceled):
		return agent.Errorf(agent.Cancelled, "the request was cancelled")
	}
	return unavailable(err, host, "the name could not be looked up")
}

// connectError says why no connection came about.
func connectError(host string, err error) error {
	var e *agent.Error
	var ne net.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, syscall.ECONNREFUSED):
		return unavailable(err, host, "the connection was refused")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return unavailable(err, host, "there is no way to the host")
	case errors.Is(err, context.Canceled):
		return agent.Errorf(agent.Cancelled, "the request was cancelled")
	case errors.As(err, &ne) && ne.Timeout():
		return unavailable(err, host, "the host did not answer in time")
	}
	return unavailable(err, host, "no connection came about")
}

// exchangeError says why a request brought no response, or not all of it. ctx is the request's.
func (c *call) exchangeError(ctx context.Context, host string, err error) error {
	if ctx.Err() != nil {
		return causeOf(ctx)
	}
	var e *agent.Error
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var verify *tls.CertificateVerificationError
	text := err.Error()
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &verify):
		what, hint := certificateWords(verify.Err)
		return &agent.Error{Kind: agent.Unavailable, Msg: host + ": " + what, Hint: hint}
	case errors.As(err, &record):
		return &agent.Error{
			Kind: agent.Unavailable, Msg: host + ": the host does not speak TLS at this port",
			Hint: "is it another port, or http:// instead of https://?",
		}
	case errors.As(err, &alert), strings.Contains(text, "tls: "):
		return unavailable(nil, host, "the TLS handshake failed: no version or cipher in common, or a client certificate is wanted")
	case strings.Contains(text, "server response headers exceeded"), strings.Contains(text, "response header list larger than"):
		return c.headerTooLarge(host)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return unavailable(err, host, "the connection was reset")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(text, "server closed"):
		return unavailable(nil, host, "the connection ended before the response did")
	case strings.Contains(text, "malformed"), strings.Contains(text, "Content-Length"), strings.Contains(text, "Transfer-Encoding"),
		strings.Contains(text, "transfer encoding"), strings.Contains(text, "chunk"), strings.Contains(text, "PROTOCOL_ERROR"), strings.Contains(text, "invalid"):
		return unavailable(nil, host, "the response is not valid HTTP")
	}
	return unavailable(err, host, "the exchange failed")
}

func certificateWords(err error) (what, hint string) {
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "the TLS certificate is for another name", ""
	case errors.As(err, &authority):
		return "the TLS certificate is signed by nobody whom this server trusts",
			"whoever runs the server can have it trust an authority: skep serve --egress-ca FILE, or SKEP_EGRESS_CA"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the TLS certificate has expired, or is not valid yet", ""
	}
	return "the TLS certificate is not valid", ""
}

// causeOf says why a context ended: over a limit, or by someone's wish.
func causeOf(ctx context.Context) error {
	var e *agent.Error
	if errors.As(context.Cause(ctx), &e) {
		return e
	}
	return agent.Wrap(agent.Cancelled, ctx.Err(), "the request was cancelled")
}
