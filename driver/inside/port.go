package inside

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

const dialPort = 5 * time.Second

// doPort connects a stream with a port of the box's loopback, and answers when that is done; the bytes then flow by themselves.
func (b *box) doPort(ctx context.Context, a *driver.PortArgs) (any, error) {
	if a.Port < 1 || a.Port > 65535 || b.isRelay(a.Port) {
		return nil, agent.Errorf(agent.Invalid, "%d is no port that can be reached from outside", a.Port)
	}
	conn, err := dialLocal(ctx, a.Port)
	if err != nil {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("nothing listens at port %d of the sandbox", a.Port), Err: err,
			Hint: "start a program that listens there, at 127.0.0.1 or all addresses"}
	}
	st, err := b.open(b.works.ctx, a.Stream)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	b.works.wg.Go(func() {
		defer st.Close()
		defer conn.Close()
		both(st, conn.(*net.TCPConn))
	})
	return nil, nil
}

// isRelay reports whether the port is that of the relay, by which a stream would come back to where it began.
func (b *box) isRelay(port int) bool {
	_, own, _ := net.SplitHostPort(b.relay)
	return own == strconv.Itoa(port)
}

// dialLocal dials IPv4 first: some programs listen at one of the two alone.
func dialLocal(ctx context.Context, port int) (conn net.Conn, err error) {
	d := net.Dialer{Timeout: dialPort}
	for _, host := range []string{"127.0.0.1", "::1"} {
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
