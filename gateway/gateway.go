// Package gateway is the way of all model traffic: it finds out which provider a request goes to, takes it there with the provider's key, tries again or
// elsewhere by the class of what failed, brings the answer back, and writes down what each call used.
//
// Where the client and the provider speak the same protocol, bytes pass as they are. Else a request goes through the canonical form of gateway/wire. Serve
// is for HTTP clients of any protocol, Ask for those that have the canonical form in hand; both take the same way. docs/design/gateway.md tells it whole.
package gateway

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/cache"
	"github.com/skep-dev/skep/gateway/wire"
)

// Caller is on whose behalf a request is made.
type Caller struct {
	App     agent.App
	Agent   string
	Session agent.SessionID
	Run     agent.RunID
	User    string
	Key     string   // id of the virtual key
	Models  []string // what may be asked for: @ROUTE and PROVIDER/MODEL, with *; nil means all

	// Use counts a request of what may be asked for, as Models has it, before any provider is asked and whether the answer is kept or not. Its error is the
	// answer. nil counts nothing.
	Use func(ctx context.Context, name string) error
}

// Request is a request of an HTTP client.
type Request struct {
	Protocol agent.Protocol
	Op       wire.Op
	Path     string // below /ai, such as /v1/messages
	Query    string
	Header   http.Header
	Body     []byte // the gateway's to keep until Serve returns
}

// Sink is where the answer to an HTTP client goes. Its methods are called by one goroutine at a time. An error of Write means that the client has gone.
type Sink interface {
	Begin(status int, header http.Header) error
	Write(p []byte) (int, error) // flushed at once; p is the gateway's again when it returns
}

// Beater is a Sink whose Write only the goroutine of Serve may call. Signs of life then go by Beat, which is called by others while Serve waits for the
// provider, and never at the same time as Begin or Write.
type Beater interface {
	Beat(p []byte) error
}

// Ender is a Sink that is told when the next Write is the last, so that it may go out together with what ends the answer.
type Ender interface{ Last() }

// Records are the providers and routes of apps.
type Records interface {
	// Stamp changes with each change of them. It is asked for each request.
	Stamp(ctx context.Context, app agent.App) (Stamp, error)
	Read(ctx context.Context, app agent.App) ([]agent.Provider, []agent.ModelRoute, error)
}

// Stamp is a state of an app's records.
type Stamp struct{ App, Providers, Routes, Guards int64 }

// Guarded are Records of apps that have guardrails, too.
type Guarded interface {
	Guardrails(ctx context.Context, app agent.App) ([]agent.Guardrail, error)
}

// Ledger is where usage is written down: Begin before a call leaves, Append with the same Model.Call when it has ended.
type Ledger interface {
	Begin(e agent.UsageEvent) error
	Append(e agent.UsageEvent) error
}

// Hold is what a call is about to use, for limits.
type Hold struct {
	Caller
	Provider *agent.Provider
	Model    string // as the provider knows it
	Route    string // as @NAME, or ""
	Tokens   int64  // as estimated: the input, and the most output that may come
	Input    int64  // of Tokens
}

// Held is a Hold that was granted.
type Held interface {
	Settle(tokens int64, micro *int64)
	Release() // nothing was used
}

// Lefter is a Held that can tell what its limits leave. HTTP clients are told it with the answer.
type Lefter interface{ Left() agent.ModelLeft }

// Instead is the error of a Hold whose limit names a route that is to be asked when it is reached.
type Instead struct{ Route string } // as @NAME

func (e *Instead) Error() string { return "the limit is reached; " + e.Route + " is asked instead" }

// Exchange is a call to a provider and its answer, without the key: what a cassette is made of.
type Exchange struct {
	App       agent.App
	Provider  string
	Model     string
	Protocol  agent.Protocol
	Stream    bool
	Op        wire.Op
	Path      string // with the query, if any
	Request   []byte
	Status    int // 0 when no answer came
	Header    http.Header
	Body      []byte // at most MaxRecord bytes
	Truncated bool   // there was more, or would have been: the client had gone
}

// MaxRecord bounds what a Tap gets of a body.
const MaxRecord = 4 << 20

// Options of a Gateway. Codecs and Records have to be there; a nil function leaves out what it is for.
type Options struct {
	Log     *slog.Logger
	Now     func() time.Time
	Tracer  trace.Tracer
	Codecs  []wire.Codec
	Records Records
	Public  http.RoundTripper // to public addresses; nil refuses providers that have a URL
	Private http.RoundTripper // to any address, for providers that are Private; nil refuses them

	// Script returns what answers for a provider that has a script. It is asked once for each revision of the record.
	Script func(ctx context.Context, p agent.Provider) (http.RoundTripper, error)
	// Secret returns the value of a provider's key, which must be good for url.
	Secret func(ctx context.Context, app agent.App, provider, name, url string) (string, error)
	Ledger Ledger
	// Price is what tokens cost, in millionths of a dollar, and the version of the table that says so; nil when it is not known.
	Price func(p *agent.Provider, model string, tokens agent.ModelTokens, tier string, at time.Time) (micro *int64, version string)
	// Hold takes from limits what a call may use. Its error is an *agent.Error, or an *Instead.
	Hold func(ctx context.Context, h Hold) (Held, error)
	// Use is what is used now of a limit that Hold takes from; org says that it is one of all apps together.
	Use func(ctx context.Context, app agent.App, org bool, limit string) ([]agent.LimitUse, error)
	// Refused is told when a provider refuses a key, which is then not used until the time given, or until Reset.
	Refused func(app agent.App, provider, secret string, why agent.FaultClass, until time.Time)
	// Logging says how many bytes of a request and of an answer Logged gets; 0 means that it is not told of the app's.
	Logging func(ctx context.Context, app agent.App) (int, error)
	Logged  func(ctx context.Context, l agent.ModelLog)

	Cache   int64         // bytes of answers that are kept for routes with a cache; 0 means 64 MiB
	Ping    time.Duration // how long a stream may be silent before a sign of life is sent to the client; 0 means 15 s
	Backoff time.Duration // before the first try again where the provider did not say; 0 means 250 ms
}

// What no option changes.
const (
	MaxBody     = 32 << 20 // bytes of a request
	MaxAnswer   = 64 << 20 // bytes of a whole answer
	maxFault    = 1 << 20  // bytes of an answer that is an error
	maxPreamble = 1 << 20  // bytes that are withheld until the first content

	defaultHeaders  = 300 * time.Second
	defaultIdle     = 120 * time.Second
	defaultDeadline = 10 * time.Minute
	defaultAttempts = 3
	maxAttempts     = 10
	maxWait         = time.Minute // that a provider may ask for
)

// Gateway is safe for concurrent use.
type Gateway struct {
	o       Options
	codecs  [agent.EmbedProtocol + 1]wire.Codec
	origin  *origins
	random  func() float64
	totals  totals
	cache   *cache.Cache
	flights flights

	tapped atomic.Int64 // how many taps there are

	mu    sync.Mutex
	books map[agent.App]*book
	taps  map[*Tap]bool
}

// New returns a gateway, which starts nothing.
func New(o *Options) *Gateway {
	g := &Gateway{o: *o, origin: newOrigins(), cache: cache.New(o.Cache), random: rand.Float64, books: map[agent.App]*book{}, taps: map[*Tap]bool{}}
	if g.o.Log == nil {
		g.o.Log = slog.New(slog.DiscardHandler)
	}
	if g.o.Now == nil {
		g.o.Now = time.Now
	}
	if g.o.Ping == 0 {
		g.o.Ping = 15 * time.Second
	}
	if g.o.Backoff == 0 {
		g.o.Backoff = 250 * time.Millisecond
	}
	for _, c := range o.Codecs {
		g.codecs[c.Protocol()] = c
	}
	return g
}

// Close forgets what the gateway knows. Requests under way go on.
func (g *Gateway) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.books)
	return nil
}

// LimitUse returns what is used of a limit of an app now, or of one of all apps together, and by whom.
func (g *Gateway) LimitUse(ctx context.Context, app agent.App, org bool, limit string) ([]agent.LimitUse, error) {
	if g.o.Use == nil {
		return nil, agent.Errorf(agent.Unavailable, "this server keeps no limits of models")
	}
	return g.o.Use(ctx, app, org, limit)
}

// Reset forgets that a provider failed or refused keys.
func (g *Gateway) Reset(app agent.App, provider string) {
	g.mu.Lock()
	b := g.books[app]
	g.mu.Unlock()
	if b == nil {
		return
	}
	if p := b.providers[provider]; p != nil {
		p.health.reset()
	}
}
