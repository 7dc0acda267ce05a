package gateway

import (
	"net/http"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// sessionHeaders are where command-line agents name their sessions: Claude Code, Codex, OpenCode.
var sessionHeaders = []string{"X-Claude-Code-Session-Id", "Session-Id", "X-Session-Id"}

const (
	maxSession = 128
	ownSession = 26 // the length of an id of Skep's own
)

// clientSession is the session that a client says its request is of, by which its usage can be found. It gives no right to anything, and cannot be that of a
// session of Skep's own.
func clientSession(h http.Header) agent.SessionID {
	for _, name := range sessionHeaders {
		id := h.Get(name)
		if len(id) == 0 || len(id) > maxSession || len(id) == ownSession {
			continue
		}
		if strings.IndexFunc(id, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' && c != ':'
		}) < 0 {
			return agent.SessionID(id)
		}
	}
	return ""
}
