// Package mcp serves Skep to MCP clients, by the Streamable HTTP transport: the tools of an app, code mode, and what agents serve as MCP
// servers of their own. Revisions 2024-11-05 to 2025-11-25 (with sessions) and 2026-07-28 (without) are spoken at the same URLs.
//
// It is a net/http handler that knows nothing of how requests come in: package api has found out who asks, and about which app. Every call
// of a tool is a run, with its grants, policy, approvals and journal; a client that goes away, or asks for it, cancels the run.
package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
)

// Options of a Handler. A zero field means the default.
type Options struct {
	Log     *slog.Logger
	Version string           // of the server
	Key     []byte           // 32 bytes that seal what clients carry between calls; drawn anew unless given
	Tools   *tools.Catalogue // nil means that there are no tools
	Origins []string         // web origins that browsers may call from, besides the server's own

	// Link makes a link by which a person answers what a run asks. nil means that there are none.
	Link func(ctx context.Context, who Caller, id agent.ApprovalID) (string, error)

	Patience time.Duration // how long a call waits for a person, whose client is then told how to go on; 45 s, below the 60 s that clients wait
	Idle     time.Duration // how long a session without requests is kept; 30 min
	Sessions int           // of one token; the one that was used longest ago ends where there would be more; 64
	Doors    int           // servers kept; 1000
	Page     int           // entries of a list that are sent at once; 500
}

// Caller is who asks, and about which app.
type Caller struct {
	Token agent.Token
	App   agent.App
	URL   string // by which its person reaches the server: "http://127.0.0.1:7537"
}

// Kind is what is found behind a door.
type Kind uint8

const (
	All   Kind = iota // tools, and the tools of code mode
	Tools             // tools alone
	Code              // the tools of code mode alone
	Serve             // what an agent serves itself
)

// Door is what a URL leads to.
type Door struct {
	Kind  Kind
	Agent string // for whom tools are called; runtime.CodeAgent unless given
}

// ParseMode reads how much of the tools a client wants to be shown: "all", "tools" or "code".
func ParseMode(s string) (Kind, error) {
	switch s {
	case "", "all":
		return All, nil
	case "tools":
		return Tools, nil
	case "code":
		return Code, nil
	}
	return All, agent.Errorf(agent.Invalid, "mode must be all, tools or code, not %.80q", s)
}

// Handler is safe for concurrent use. Close it.
type Handler struct {
	rt    *runtime.Runtime
	st    *store.Store
	o     Options
	seal  *seal
	chain http.Handler

	mu       sync.Mutex
	doors    map[doorKey]*door
	sessions sessions
	flying   sync.Map // id of a request to its http.ResponseWriter

	stopping atomic.Bool
	closing  context.Context
	close    context.CancelFunc
	work     sync.WaitGroup
}

// New returns a handler that calls tools through rt. It starts nothing before a request comes.
func New(rt *runtime.Runtime, st *store.Store, o *Options) *Handler {
	h := &Handler{rt: rt, st: st, doors: map[doorKey]*door{}}
	if o != nil {
		h.o = *o
	}
	if h.o.Log == nil {
		h.o.Log = slog.New(slog.DiscardHandler)
	}
	h.o.Version = cmp.Or(h.o.Version, "dev")
	h.o.Patience = cmp.Or(h.o.Patience, 45*time.Second)
	h.o.Idle = cmp.Or(h.o.Idle, 30*time.Minute)
	h.o.Sessions = cmp.Or(h.o.Sessions, 64)
	h.o.Doors = cmp.Or(h.o.Doors, 1000)
	h.o.Page = cmp.Or(h.o.Page, 500)
	h.seal = newSeal(h.o.Key)
	h.closing, h.close = context.WithCancel(context.Background())
	h.chain = h.eras()
	return h
}

// Stop has calls under way answer their clients, who may ask later what became of the runs: these are not cancelled.
func (h *Handler) Stop() { h.stopping.Store(true) }

// Close ends all sessions and waits for what was started.
func (h *Handler) Close() error {
	h.Stop()
	h.close()
	h.mu.Lock()
	doors := h.doors
	h.doors = map[doorKey]*door{}
	h.mu.Unlock()
	for _, d := range doors {
		for s := range d.server.Sessions() {
			_ = s.Close()
		}
	}
	h.work.Wait()
	return nil
}

// headerRequest names a request to the handlers of its messages. What a client sends under it is overwritten.
const headerRequest = "Skep-Mcp-Request"

// protocol2026 is the revision from which on there are no sessions.
const protocol2026 = "2026-07-28"

type (
	callerKey struct{}
	doorCtx   struct{}
)

// Serve answers one request. It returns an error only when nothing was written. The body must be bounded.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, who Caller, at Door) error {
	if err := h.checkOrigin(r); err != nil {
		return err
	}
	d, err := h.door(r.Context(), who.App, at)
	if err != nil {
		return err
	}
	id := rand.Text()
	r = r.Clone(context.WithValue(context.WithValue(r.Context(), callerKey{}, who), doorCtx{}, d))
	r.Header.Set(headerRequest, id)
	h.flying.Store(id, w)
	defer h.flying.Delete(id)
	if opens(r) {
		h.sessions.room(who.Token.ID, h.o.Sessions)
	}
	h.chain.ServeHTTP(w, r)
	if s := w.Header().Get("Mcp-Session-Id"); s != "" && opens(r) {
		h.sessions.add(who.Token.ID, s, d.server)
	} else if s := r.Header.Get("Mcp-Session-Id"); s != "" {
		h.sessions.used(who.Token.ID, s)
	}
	return nil
}

// opens reports whether a request may open a session.
func opens(r *http.Request) bool {
	return r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" && r.Header.Get("Mcp-Protocol-Version") < protocol2026
}

// eras returns the handlers of both eras behind what tells them apart. Sessions are bound to the token and the door that began them.
func (h *Handler) eras() http.Handler {
	server := func(r *http.Request) *sdk.Server {
		if d, ok := r.Context().Value(doorCtx{}).(*door); ok {
			return d.server
		}
		return nil
	}
	events := sdk.NewMemoryEventStore(nil)
	events.SetMaxBytes(64 << 20)
	log := h.o.Log.With("part", "mcp")
	old := sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
		Logger: quiet(log), SessionTimeout: h.o.Idle, EventStore: events, DisableLocalhostProtection: true, MaxRequestBodyBytes: -1,
	})
	now := sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
		Logger: quiet(log), Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: -1,
	})
	verify := func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		who, ok := ctx.Value(callerKey{}).(Caller)
		d, _ := ctx.Value(doorCtx{}).(*door)
		if !ok || d == nil {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{
			UserID: string(who.Token.ID) + "\x00" + d.key.String(), Expiration: who.Token.Expires, Extra: map[string]any{"caller": who},
		}, nil
	}
	return auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= protocol2026 {
			now.ServeHTTP(w, r)
			return
		}
		old.ServeHTTP(w, r)
	}))
}

// checkOrigin refuses pages of other origins (MCP 2025-11-25, transports, security warning).
func (h *Handler) checkOrigin(r *http.Request) error {
	for _, origin := range r.Header.Values("Origin") {
		_, host, _ := strings.Cut(origin, "://")
		if strings.EqualFold(host, r.Host) || sameLoopback(host, r.Host) || slices.Contains(h.o.Origins, origin) {
			continue
		}
		return &agent.Error{
			Kind: agent.Denied, Msg: "pages of this origin may not call: " + phrase.Clip(origin, 80), Hint: "allow it with skep serve --origin",
		}
	}
	return nil
}

// callerOf returns who sent the request that extra belongs to.
func callerOf(extra *sdk.RequestExtra) Caller {
	if extra == nil || extra.TokenInfo == nil {
		return Caller{}
	}
	who, _ := extra.TokenInfo.Extra["caller"].(Caller)
	return who
}

// begin sends the head of the answer to a request whose result will take a while, so that heartbeats can follow it. From then on the
// result must not be a protocol error.
func (h *Handler) begin(extra *sdk.RequestExtra) {
	if extra == nil || extra.Header == nil {
		return
	}
	if w, ok := h.flying.Load(extra.Header.Get(headerRequest)); ok {
		if b, ok := w.(interface{ Begin() }); ok {
			b.Begin()
		}
	}
}

// Forget ends the sessions of tokens that are no more.
func (h *Handler) Forget(ids ...agent.TokenID) {
	for _, id := range ids {
		h.sessions.room(id, 0)
	}
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}
