package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	maxTried  = 4 // addresses of one name that are dialled
	maxFound  = 256
	headStart = 250 * time.Millisecond // of one address before the next (RFC 8305, section 5)
	keepAlive = 30 * time.Second
)

// dialer resolves, judges and connects.
type dialer struct {
	resolver Resolver
	dial     func(context.Context, netip.AddrPort) (net.Conn, error)
	allow    []netip.Prefix
	own      func() ([]netip.Addr, error)
}

// attempt is the context of a call, in which its dialer finds it again. http.Transport would let a connection that nobody waits
// for any more come about, for later requests; this one ends it with the call, whose slot it is made in.
type attempt struct {
	context.Context
	limits *Limits
}

type attemptKey struct{}

func (a *attempt) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return a
	}
	return a.Context.Value(key)
}

func attemptOf(ctx context.Context) *attempt { return ctx.Value(attemptKey{}).(*attempt) }

func (a *attempt) within(d time.Duration, late error) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(a, d, late)
}

// connectTo is http.Transport's DialContext. It gets a host and a port in the form that was judged.
func (d *dialer) connectTo(ctx context.Context, _, hostport string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	a := attemptOf(ctx)
	late := agent.Exceeded(agent.LimitHTTP, "connecting to %s took more than %s", host, a.limits.Connect)
	ctx, cancel := a.within(a.limits.Connect, late)
	defer cancel()
	addrs, err := d.resolve(ctx, host)
	if err == nil {
		var conn net.Conn
		if conn, err = d.race(ctx, addrs, uint16(n)); err == nil {
			return conn, nil
		}
		err = connectError(hostport, err)
	}
	if errors.Is(context.Cause(ctx), late) {
		return nil, late
	}
	return nil, err
}

// connectTLS is connectTo with a handshake after it.
func (d *dialer) connectTLS(ctx context.Context, hostport string, c *tls.Config) (net.Conn, error) {
	conn, err := d.connectTo(ctx, "tcp", hostport)
	if err != nil {
		return nil, err
	}
	c = c.Clone()
	if c.ServerName, _, err = net.SplitHostPort(hostport); err != nil {
		_ = conn.Close()
		return nil, err
	}
	a := attemptOf(ctx)
	late := agent.Exceeded(agent.LimitHTTP, "%s: the TLS handshake took more than %s", c.ServerName, a.limits.TLS)
	ctx, cancel := a.within(a.limits.TLS, late)
	defer cancel()
	secure := tls.Client(conn, c)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		if errors.Is(context.Cause(ctx), late) {
			return nil, late
		}
		return nil, err
	}
	return secure, nil
}

// resolve returns the addresses of a host if every one of them may be dialled. One bad address refuses the name: whoever owns
// it would else only have to wait for a good moment.
func (d *dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addr, err := netip.ParseAddr(host)
	if err == nil {
		return []netip.Addr{addr.Unmap()}, d.judge(host, []netip.Addr{addr})
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // no name server is asked (RFC 6761, section 6.3)
		addrs := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
		return addrs, d.judge(host, addrs)
	}
	found, err := d.resolver.LookupNetIP(ctx, "ip", host+".")
	if err != nil {
		return nil, lookupError(host, err)
	}
	if len(found) == 0 {
		return nil, agent.Errorf(agent.Unavailable, "%s has no address", host)
	}
	if len(found) > maxFound {
		return nil, agent.Exceeded(agent.LimitHTTP, "%s has %d addresses, more than %d", host, len(found), maxFound)
	}
	if err := d.judge(host, found); err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(found))
	for _, a := range found {
		if a = a.Unmap(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

func (d *dialer) judge(host string, addrs []netip.Addr) error {
	var own []netip.Addr
	for _, a := range addrs {
		kind := refusal(a, d.allow)
		if kind == "" && !slices.ContainsFunc(d.allow, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) }) {
			if own == nil {
				var err error
				if own, err = d.own(); err != nil {
					return agent.Wrap(agent.Unavailable, err, "this machine's own addresses are not known, so no address can be judged")
				}
			}
			if slices.Contains(own, a.Unmap()) {
				kind = "an address of this server"
			}
		}
		if kind != "" {
			return notPublic(host, a, kind)
		}
	}
	return nil
}

func notPublic(host string, a netip.Addr, kind string) error {
	verb := " resolves to "
	if _, err := netip.ParseAddr(host); err == nil {
		verb = " is "
	}
	return &agent.Error{
		Kind: agent.Denied, Msg: host + verb + kind + ", which agents may not reach",
		Hint: "whoever runs the server can allow a range of addresses: skep serve --egress-allow PREFIX, or SKEP_EGRESS_ALLOW",
		Err:  fmt.Errorf("address %s", a),
	}
}

// race connects to the first address that answers: one family after the other, each with a head start.
func (d *dialer) race(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	addrs = alternate(addrs)
	addrs = addrs[:min(len(addrs), maxTried)]
	if len(addrs) == 1 {
		return d.dial(ctx, netip.AddrPortFrom(addrs[0], port))
	}
	type result struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan result)
	var first error
	next, running := 0, 0
	defer func() { // the losers end before race does, and their connections are closed
		cancel()
		for ; running > 0; running-- {
			if r := <-results; r.conn != nil {
				_ = r.conn.Close()
			}
		}
	}()
	start := func() {
		a := addrs[next]
		next++
		running++
		go func() {
			conn, err := d.dial(ctx, netip.AddrPortFrom(a, port))
			results <- result{conn, err}
		}()
	}
	for start(); ; {
		var late <-chan time.Time
		if next < len(addrs) {
			late = time.After(headStart)
		}
		select {
		case r := <-results:
			running--
			switch {
			case r.err == nil:
				return r.conn, nil
			case first == nil:
				first = r.err
			}
			if next == len(addrs) && running == 0 {
				return nil, first
			}
			if next < len(addrs) {
				start()
			}
		case <-late:
			start()
		}
	}
}

// alternate puts addresses of both families in turns, beginning with the first one's.
func alternate(addrs []netip.Addr) []netip.Addr {
	var mine, other []netip.Addr
	for _, a := range addrs {
		if a.Is4() == addrs[0].Is4() {
			mine = append(mine, a)
		} else {
			other = append(other, a)
		}
	}
	out := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(mine), len(other)) {
		if i < len(mine) {
			out = append(out, mine[i])
		}
		if i < len(other) {
			out = append(out, other[i])
		}
	}
	return out
}

// system dials by the system, which gets an address and never a name. The socket's address is judged once more before it is used.
func (d *dialer) system(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	nd := net.Dialer{KeepAlive: keepAlive, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if address != to.String() {
			return fmt.Errorf("the socket is for %s, not for %s", address, to)
		}
		if kind := refusal(to.Addr(), d.allow); kind != "" {
			return notPublic(to.Addr().String(), to.Addr(), kind)
		}
		return nil
	}}
	return nd.DialContext(ctx, "tcp", to.String())
}

// ownAddrs returns the addresses of this machine's interfaces.
func ownAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		text, _, _ := strings.Cut(a.String(), "/")
		if addr, err := netip.ParseAddr(text); err == nil {
			addrs = append(addrs, addr.Unmap().WithZone(""))
		}
	}
	return addrs, nil
}
