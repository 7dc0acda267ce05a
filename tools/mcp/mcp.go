// Package mcp makes servers of the Model Context Protocol sources of tools: programs that speak it over their standard input and output, and URLs
// that speak it by Streamable HTTP (revisions 2025-11-25 and 2026-07-28, and those before) or by HTTP with SSE (2024-11-05).
//
// A server is hostile until shown otherwise. All that comes from it is bounded where it comes in, what it says of itself is kept as it said it, and
// what is wrong with one of its tools leaves out that tool alone. See docs/design/mcp-client.md.
package mcp

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/vault/scrub"
)

// Options of Open. A zero field is its default.
type Options struct {
	Log     *slog.Logger // nil says nothing
	Version string       // of Skep, that servers are told
	Dir     string       // below which programs have their folders; needed for stdio unless the record names a folder

	// Egress is the way out for HTTP, and Private the one for records that say so, which may reach private addresses as well. Both should be made with
	// Limits, since what they carry lives long.
	Egress, Private *egress.Egress

	// Secret returns the value that a record names as ${secret:NAME}. to is the URL that it goes to, or empty when it goes to a program.
	Secret func(ctx context.Context, app agent.App, name, to string) (string, error)

	OAuth *OAuth // who keeps the tokens of servers that want authorization; nil knows none

	Idle  time.Duration // without a call, after which a server is left or stopped; 10 minutes unless given
	Start time.Duration // that a server may take to be ready; 1 minute unless given

	// Bounds of what a server may say, see DefaultBounds.
	Bounds Bounds
}

// Bounds is how much a server may say. A zero field is that of DefaultBounds.
type Bounds struct {
	Tools       int   // that it may offer
	Description int   // bytes of a tool's description
	Schema      int   // bytes of a schema
	Message     int64 // bytes of one message, such as an answer
	Garbage     int64 // bytes between two messages of a program that are none
}

// DefaultBounds is 5,000 tools, 64 KiB of description, 256 KiB of schema, messages of 64 MiB, and 1 MiB of garbage.
func DefaultBounds() Bounds {
	return Bounds{Tools: 5000, Description: 64 << 10, Schema: 256 << 10, Message: 64 << 20, Garbage: 1 << 20}
}

func (b Bounds) or(d Bounds) Bounds {
	return Bounds{
		cmp.Or(b.Tools, d.Tools), cmp.Or(b.Description, d.Description), cmp.Or(b.Schema, d.Schema),
		cmp.Or(b.Message, d.Message), cmp.Or(b.Garbage, d.Garbage),
	}
}

// Limits is what the ways out of Options should allow: streams live as long as their sessions, and answers are bounded here.
func Limits() egress.Limits {
	const long = 1000 * time.Hour
	return egress.Limits{Header: long, Idle: long, Total: long, ResponseBytes: 1 << 40, PerOwner: 256}
}

// callTimeout is that of a record that gives none.
const callTimeout = time.Minute

// source is an opened server. Each user whose own authorization it uses has a keeper, and with it a connection; all others share one.
type source struct {
	rec     agent.ToolServer
	o       Options
	changed func()

	mu      sync.Mutex
	keepers map[string]*keeper // by user; "" is the shared one
	notes   []string           // what was left out of the last list
	tools   int
	own     map[string]bool // methods of Skep's own that are listed
	closed  bool
	work    sync.WaitGroup
	stop    func() // following OAuth
}

// Open returns the source of a record of kind stdio, http or sse. It starts nothing: that happens when the source is first needed. changed is called,
// from any goroutine, when the server's list may have changed or it has failed; nil tells no one. A record that cannot be right is an Invalid error.
func Open(_ context.Context, rec agent.ToolServer, o *Options, changed func()) (tools.Source, error) {
	s := &source{rec: rec, changed: changed, keepers: map[string]*keeper{}}
	if o != nil {
		s.o = *o
	}
	if s.o.Log == nil {
		s.o.Log = slog.New(slog.DiscardHandler)
	}
	s.o.Log = s.o.Log.With("app", rec.App, "server", rec.Name)
	s.o.Bounds = s.o.Bounds.or(DefaultBounds())
	s.o.Idle = cmp.Or(s.o.Idle, 10*time.Minute)
	s.o.Start = cmp.Or(s.o.Start, time.Minute)
	if s.changed == nil {
		s.changed = func() {}
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	s.stop = func() {}
	if s.o.OAuth != nil {
		s.stop = s.o.OAuth.follow(s)
	}
	return s, nil
}

func (s *source) check() error {
	bad := func(format string, args ...any) error {
		return agent.Errorf(agent.Invalid, "server "+s.rec.Name+": "+format, args...)
	}
	switch s.rec.Kind {
	case agent.MCPStdio:
		if len(s.rec.Command) == 0 || s.rec.Command[0] == "" {
			return bad("a server of kind stdio needs a command")
		}
		if s.o.Dir == "" && s.rec.Dir == "" {
			return bad("there is no folder for it to run in")
		}
		for name, value := range s.rec.Env {
			if err := checkEnv(name, value); err != nil {
				return bad("%s", agent.AsError(err).Msg)
			}
		}
	case agent.MCPHTTP, agent.MCPSSE:
		u, err := url.Parse(s.rec.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
			return bad("its URL is none of a web server, such as https://mcp.example.com/mcp")
		}
		if s.way() == nil {
			return bad("there is no way out to it")
		}
		for name, value := range s.rec.Header {
			if err := checkHeader(name, value); err != nil {
				return bad("%s", agent.AsError(err).Msg)
			}
		}
	default:
		return bad("kind %s does not speak MCP", s.rec.Kind)
	}
	return nil
}

// way is the way out of this record.
func (s *source) way() *egress.Egress {
	if s.rec.Private {
		return s.o.Private
	}
	return s.o.Egress
}

// keeper returns who keeps the connection that a user's calls go over.
func (s *source) keeper(ctx context.Context, user string) (*keeper, error) {
	if s.rec.OAuth == nil || s.o.OAuth == nil || user != "" && !s.o.OAuth.has(ctx, s.rec, user) {
		user = ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, tools.MarkUnsent(agent.Errorf(agent.Unavailable, "server %s is closed", s.rec.Name))
	}
	k := s.keepers[user]
	if k == nil {
		k = &keeper{s: s, user: user, state: agent.ServerIdle, since: time.Now()}
		s.keepers[user] = k
	}
	return k, nil
}

// Status is tools.Source's. Of a server with several users' connections it is the shared one's.
func (s *source) Status() agent.ToolStatus {
	s.mu.Lock()
	out := agent.ToolStatus{Server: s.rec.Name, Kind: s.rec.Kind, Tools: s.tools, Notes: s.notes}
	k := s.keepers[""]
	s.mu.Unlock()
	if k != nil {
		k.status(&out)
	}
	return out
}

// Close is tools.Source's. It ends programs with all that they have started, and returns when they are gone.
func (s *source) Close() error {
	s.stop()
	s.mu.Lock()
	s.closed = true
	keepers := make([]*keeper, 0, len(s.keepers))
	for _, k := range s.keepers {
		keepers = append(keepers, k)
	}
	s.mu.Unlock()
	for _, k := range keepers {
		k.close()
	}
	s.work.Wait()
	return nil
}

// scrubber takes out the secrets that were put in.
func scrubber(values []string) *scrub.Scrubber {
	all := make([][]byte, len(values))
	for i, v := range values {
		all[i] = []byte(v)
	}
	return scrub.New(all...)
}
