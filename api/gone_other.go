//go:build !unix

package api

import (
	"context"
	"net"
)

// watchGone does nothing here: a client that has gone shows as a write that fails.
func watchGone(net.Conn, context.CancelFunc) (stop func()) { return func() {} }
