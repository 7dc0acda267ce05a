package mcp

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
)

// sessions are those of clients of before 2026-07-28, by token. A client that comes and goes without a word leaves sessions behind; those
// that were used longest ago make room for new ones.
type sessions struct {
	mu      sync.Mutex
	byToken map[agent.TokenID][]*session
}

type session struct {
	id     string
	server *sdk.Server
	used   time.Time
}

// live returns what the SDK knows of it; nil when it has ended.
func (s *session) live() *sdk.ServerSession {
	for one := range s.server.Sessions() {
		if one.ID() == s.id {
			return one
		}
	}
	return nil
}

func (s *sessions) add(token agent.TokenID, id string, server *sdk.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byToken == nil {
		s.byToken = map[agent.TokenID][]*session{}
	}
	s.byToken[token] = append(s.byToken[token], &session{id: id, server: server, used: time.Now()})
}

func (s *sessions) used(token agent.TokenID, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byToken[token] {
		if one.id == id {
			one.used = time.Now()
		}
	}
}

// room forgets a token's sessions that have ended, and ends others until there are fewer than limit; all of them for 0.
func (s *sessions) room(token agent.TokenID, limit int) {
	s.mu.Lock()
	mine := slices.DeleteFunc(s.byToken[token], func(one *session) bool { return one.live() == nil })
	slices.SortStableFunc(mine, func(a, b *session) int { return a.used.Compare(b.used) })
	n := min(len(mine), max(0, len(mine)-limit+1))
	if limit == 0 {
		n = len(mine)
	}
	over := mine[:n]
	if rest := slices.Clone(mine[n:]); len(rest) > 0 {
		s.byToken[token] = rest
	} else {
		delete(s.byToken, token)
	}
	s.mu.Unlock()
	for _, one := range over {
		if live := one.live(); live != nil {
			go live.Close() // which waits for the calls under way
		}
	}
}

// sameLoopback reports whether both names are of this machine: a page that was served here, by another port, is no stranger.
func sameLoopback(a, b string) bool { return loopback(a) && loopback(b) }

func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// quiet passes on what the SDK has to say as news of the lowest rank: it tells of each session, and calls what clients do wrong errors.
func quiet(log *slog.Logger) *slog.Logger { return slog.New(quietHandler{log.Handler()}) }

type quietHandler struct{ slog.Handler }

func (q quietHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

func (q quietHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return quietHandler{q.Handler.WithAttrs(a)}
}
func (q quietHandler) WithGroup(n string) slog.Handler { return quietHandler{q.Handler.WithGroup(n)} }
