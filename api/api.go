// Package api serves Skep over HTTP: REST described by an OpenAPI document, event streams as SSE and NDJSON, and
// WebSockets. It is the only importer of fiber. Handlers are plain functions from a request struct to a result; one
// adapter decodes, authenticates, limits and answers for all of them, and one function turns their errors into responses.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/mcp"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/sandbox/keeper"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
	toolmcp "github.com/skep-dev/skep/tools/mcp"
	"github.com/skep-dev/skep/vault"
)

// Options tune a Server. The zero value works.
type Options struct {
	Log       *slog.Logger     // nil discards
	Version   string           // of the server, for the OpenAPI document and the metrics
	Upload    int64            // most bytes of an uploaded plugin; 0 means 64 MiB
	Heartbeat time.Duration    // how long a stream may be silent; 0 means 15 s
	Silence   time.Duration    // how long a WebSocket's client may answer no ping; 0 means three heartbeats
	Drain     time.Duration    // how long requests may go on after a stop; 0 means 10 s
	Origins   []string         // web origins that browsers may call from ("https://example.com"); none by default
	Hosts     []string         // further Host names to accept when listening on a loopback address
	Now       func() time.Time // for tokens; nil means time.Now
	Vault     *vault.Vault     // nil keeps no secrets
	LinkKey   []byte           // that links to approvals are made with, 32 bytes or more; nil makes one that is gone at the end
	URL       string           // by which people reach the server, for links; "" means as the request did
	Tools     *tools.Catalogue // the same as the runtime's; nil means that there are none
	OAuth     *toolmcp.OAuth   // authorizes Skep with servers of tools; nil authorizes with none
	Tracer    trace.Tracer     // nil records nothing
	Models    *gateway.Gateway // the model gateway; nil means that there is none
	Sandboxes *keeper.Keeper   // the same as the runtime's; nil means that there are none
	MCPKey    []byte           // seals what MCP clients carry between calls; drawn anew unless given
	MCPWait   time.Duration    // how long a call of an MCP client waits for a person; 0 means 45 s
}

// Sizes and times that no option changes.
const (
	maxJSON      = 1 << 20
	maxHeader    = 16 << 10
	maxUnread    = 256 << 10 // of a refused request's body that fasthttp still reads to keep the connection
	maxMessage   = 1 << 20   // of one WebSocket message
	readTimeout  = 5 * time.Minute
	writeTimeout = 5 * time.Minute
	idleTimeout  = 2 * time.Minute
	stallTimeout = 30 * time.Second // for a stream's listener to take what it was sent
)

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Log == nil {
		out.Log = slog.New(slog.DiscardHandler)
	}
	if out.Version == "" {
		out.Version = "dev"
	}
	if out.Upload == 0 {
		out.Upload = 64 << 20
	}
	if out.Heartbeat == 0 {
		out.Heartbeat = 15 * time.Second
	}
	if out.Silence == 0 {
		out.Silence = 3 * out.Heartbeat
	}
	if out.Drain == 0 {
		out.Drain = 10 * time.Second
	}
	if out.Now == nil {
		out.Now = time.Now
	}
	if out.LinkKey == nil {
		out.LinkKey = newLinkKey()
	}
	if out.Tracer == nil {
		out.Tracer = telemetry.None()
	}
	out.Log = telemetry.Logger(out.Log)
	return out
}

// Server answers HTTP requests for one runtime and its store, neither of which it closes.
type Server struct {
	rt      *runtime.Runtime
	st      *store.Store
	o       Options
	tokens  *tokens
	ids     *requestIDs
	routes  []route
	doc     []byte // the OpenAPI document
	metrics *metrics
	mcp     *mcp.Handler
	boards  boards
	started time.Time
	stopped atomic.Bool
	sockets sync.WaitGroup // WebSockets and uploads, which outlive their handlers
}

// New returns a server, which does nothing until Run.
func New(rt *runtime.Runtime, st *store.Store, o *Options) *Server {
	opts := o.withDefaults()
	s := &Server{
		rt: rt, st: st, o: opts, tokens: newTokens(st, opts.Now), ids: newRequestIDs(),
		started: opts.Now(),
	}
	s.mcp = s.newMCP()
	s.routes = s.table()
	s.metrics = newMetrics(s)
	s.doc = document(s.routes, opts.Version)
	return s
}

// life is how long things go on: streams end when soft does, requests are cut when hard does.
type life struct{ soft, hard context.Context }

// Run serves connections of ln, which it closes, until ctx ends. Then it takes no new request, ends the streams, gives
// requests under way Options.Drain to finish and cuts what is left. It returns nil after such a stop.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer s.mcp.Close()
	conns := newConns(ln)
	app := s.fiber(life{ctx, hard}, isLoopback(ln.Addr()))

	served := make(chan error, 1)
	go func() { served <- app.Listener(conns) }()
	select {
	case err := <-served:
		cut()
		conns.closeAll()
		s.sockets.Wait()
		return err
	case <-ctx.Done():
	}

	s.stopped.Store(true)
	s.mcp.Stop()
	timeout, cancel := context.WithTimeout(hard, s.o.Drain)
	defer cancel()
	err := app.ShutdownWithContext(timeout)
	if errors.Is(err, context.DeadlineExceeded) {
		s.o.Log.Warn("api: requests cut after the drain time", "drain", s.o.Drain)
		cut()
		conns.closeAll()
		err = app.Shutdown()
	}
	s.waitSockets(timeout)
	cut()
	conns.closeAll()
	s.sockets.Wait()
	_ = ln.Close() // a server that had not begun to accept when it was shut down would accept from now on
	if serving := <-served; !errors.Is(serving, net.ErrClosed) {
		err = errors.Join(err, serving)
	}
	return err
}

func (s *Server) waitSockets(ctx context.Context) {
	done := make(chan struct{})
	go func() { s.sockets.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// fiber returns an app with every route.
func (s *Server) fiber(l life, loopback bool) *fiber.App {
	app := fiber.New(fiber.Config{
		DisableStartupMessage: true, CaseSensitive: true, StrictRouting: true,
		// Bodies are read by the adapter, after it has checked the token and the route's limit.
		StreamRequestBody: true, DisablePreParseMultipartForm: true, BodyLimit: int(max(s.o.Upload, agent.MaxLimits().Input)),
		ReadBufferSize: maxHeader, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		DisableDefaultContentType: true,
		ErrorHandler:              func(c *fiber.Ctx, err error) error { return s.refuse(c, err) },
	})
	app.Server().Logger = fasthttpLog{s.o.Log}
	app.Server().CloseOnShutdown = true
	app.Use(s.guard(loopback))
	for i := range s.routes {
		r := &s.routes[i]
		app.Add(r.method, fiberPath(r.path), func(c *fiber.Ctx) error { return s.serve(l, r, c) })
	}
	return app
}

// fasthttpLog passes what fasthttp has to say, which is about single connections, to the log.
type fasthttpLog struct{ log *slog.Logger }

var _ fasthttp.Logger = fasthttpLog{}

func (l fasthttpLog) Printf(format string, args ...any) {
	l.log.Debug("api: connection", "detail", fmt.Sprintf(format, args...))
}
