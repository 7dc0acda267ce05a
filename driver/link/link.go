// Package link is the control plane's end of the connection to the driver of one box: it lets the driver in, stores its events before it acknowledges
// them, sends it commands over lost connections, and hands out streams. docs/design/driver.md has the protocol.
package link

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// Options is what a Link is made of.
type Options struct {
	Sandbox    agent.SandboxID
	Generation int64
	// Token is that of the boot payload. It counts for TokenLife from New, for one driver, until that has been ready. "" when it was used before.
	Token string
	// Key is by which the driver comes back, also to a Link of a later process: see DeriveKey. Unless given it is random, and dies with this Link.
	Key string
	// Acked is the newest event that is stored.
	Acked int64
	// Welcome says what a driver that was let in is told; Key and Acked are filled in. It is called at each connection.
	Welcome func(ctx context.Context) (driver.WelcomeBody, error)
	// Events stores events, of which the first has number first. They are acknowledged when it has returned nil, and come again after an error. It is
	// called by one goroutine at a time, with numbers that follow each other, also over connections.
	Events func(ctx context.Context, first int64, list []driver.Event) error
	// State is told when the driver is ready, at each connection, and, with the reason, when it is lost: it said goodbye, or nothing for LostAfter. A
	// connection that is lost and comes back in time is no change. One call at a time, on a goroutine of its own. nil is fine.
	State func(up bool, why error)
	Log   *slog.Logger // slog.Default unless given

	LostAfter time.Duration // driver.LostAfter unless given
	TokenLife time.Duration // driver.TokenLife unless given
}

// ErrLost is in the chain of what says that a driver has gone.
var ErrLost = errors.New("the driver is lost")

// ErrTooMuch is in the chain of what Options.Events says of a driver that tells more than it may. The driver is lost then.
var ErrTooMuch = errors.New("the driver tells too much")

// Bounds of a Link.
const (
	maxCommands = 1024 // that wait for a reply
	maxStreams  = 256  // that are open or wait to be
	maxGreeting = 8    // connections that have not said who they are: any process in the box can make some
	maxStrikes  = 8    // times that a driver may break the protocol before it is taken for lost
	greetWithin = 10 * time.Second
)

// Link is the connection to the driver of one box, of one generation. It is safe for concurrent use.
type Link struct {
	o        Options
	log      *slog.Logger
	made     time.Time
	greeting chan struct{} // a slot of maxGreeting for each
	storing  sync.Mutex    // held while events are stored; before mu
	telling  sync.Mutex    // held while State is called; before mu
	sessions sync.WaitGroup

	mu      sync.Mutex
	nonce   string // of the driver that has used the token
	spent   bool   // the token counts no more
	hello   *driver.HelloBody
	heard   time.Time // when the driver said its last word; zero when it never did
	stand   stand
	told    stand
	why     error         // when lost or closed
	changed chan struct{} // closed at each change of stand
	current *session
	acked   int64
	strikes int
	timer   *time.Timer // takes the driver for lost
	calls   map[uint64]*call
	order   []*call // those of calls, as they were made
	streams map[string]*Stream
}

// stand is where a Link stands. A lost driver may come back; a closed Link is closed.
type stand uint8

const (
	waiting stand = iota
	up
	lost
	closed
)

// New returns a Link that waits for a driver. Close ends it.
func New(o Options) *Link {
	if o.LostAfter == 0 {
		o.LostAfter = driver.LostAfter
	}
	if o.TokenLife == 0 {
		o.TokenLife = driver.TokenLife
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Key == "" {
		o.Key = NewSecret()
	}
	l := &Link{
		o: o, log: o.Log.With("sandbox", string(o.Sandbox), "generation", o.Generation), made: time.Now(), acked: o.Acked, spent: o.Token == "",
		greeting: make(chan struct{}, maxGreeting), changed: make(chan struct{}), calls: map[uint64]*call{}, streams: map[string]*Stream{},
	}
	l.timer = time.AfterFunc(o.LostAfter, l.silent)
	if o.Token != "" {
		l.timer.Stop() // how long a box may take to say hello is for who calls Ready to say
	}
	return l
}

// NewSecret returns 256 random bits as text, for Token, or for the secret of DeriveKey.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// DeriveKey returns the Key of a box: HMAC-SHA256 of its id and generation under a secret of the server's, of 32 bytes or more. So no key has to be
// stored, and a server that starts again knows the drivers that it finds.
func DeriveKey(secret []byte, id agent.SandboxID, generation int64) string {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "skep driver key\x00%s\x00%d", id, generation)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Hello returns what the driver has said of itself the last time, or nil.
func (l *Link) Hello() *driver.HelloBody {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hello
}

// Up reports whether the driver has been ready and was not lost since. Its connection may be gone for a moment.
func (l *Link) Up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stand == up
}

// Err returns why the driver has gone, wrapping ErrLost, or why the Link was closed; nil otherwise.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stand == lost || l.stand == closed {
		return l.why
	}
	return nil
}

// Acked returns the number of the newest event that is stored.
func (l *Link) Acked() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// Ready waits until the driver is ready. An error is Unavailable, and says how far the driver has come; it wraps ErrLost when the driver has gone.
func (l *Link) Ready(ctx context.Context) error {
	begun := time.Now()
	for {
		l.mu.Lock()
		stand, why, changed := l.stand, l.why, l.changed
		l.mu.Unlock()
		switch stand {
		case up:
			return nil
		case lost, closed:
			return why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return l.unready(ctx, time.Since(begun))
		}
	}
}

func (l *Link) unready(ctx context.Context, waited time.Duration) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &agent.Error{Kind: agent.Cancelled, Msg: "waiting for the driver of the sandbox was cancelled", Err: ctx.Err()}
	}
	e := &agent.Error{Kind: agent.Unavailable, Err: ctx.Err()}
	if l.Hello() == nil {
		e.Msg = fmt.Sprintf("the driver said nothing for %s", rounded(waited))
		e.Hint = "see the log of the box: the image may lack a shell or have another architecture, or the machine may be overloaded"
	} else {
		e.Msg = fmt.Sprintf("the driver said hello, and was not ready within %s", rounded(waited))
		e.Hint = "see the log of the box"
	}
	return e
}

func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// Close ends the connection and all that waits for the driver, and tells the driver to end: with why, unless that is nil. It returns at once and may be
// called again; Wait waits.
func (l *Link) Close(why error) {
	if why == nil {
		why = &agent.Error{Kind: agent.Unavailable, Msg: "the sandbox is closed"}
	}
	l.end(why, true)
}

func (l *Link) end(why error, bye bool) {
	l.mu.Lock()
	if l.stand == closed {
		l.mu.Unlock()
		return
	}
	l.timer.Stop()
	s := l.current
	l.move(closed, why)
	streams := l.streams
	l.streams = map[string]*Stream{}
	l.mu.Unlock()
	for _, st := range streams {
		st.abort(why)
	}
	switch {
	case s != nil && bye:
		s.bye(why)
	case s != nil:
		s.cancel()
	}
}

// Detach ends the connection and all that waits for the driver without telling the driver, which will come back: to the Link that this process, or a later
// one, makes for the same box. It is what a server does that stops and leaves its boxes as they are.
func (l *Link) Detach() {
	l.end(&agent.Error{Kind: agent.Unavailable, Msg: "the server is stopping"}, false)
}

// Wait returns when, after Close or Detach, nothing of the Link runs any more.
func (l *Link) Wait() { l.sessions.Wait() }

// move changes where the Link stands; mu is held. What waits for a reply learns that there will be none when the driver has gone.
func (l *Link) move(to stand, why error) {
	l.stand, l.why = to, why
	close(l.changed)
	l.changed = make(chan struct{})
	if to == lost || to == closed {
		for _, c := range l.order {
			c.fail(why)
		}
		clear(l.calls)
		l.order = nil
	}
}

// silent is called when nothing was heard for LostAfter.
func (l *Link) silent() {
	l.mu.Lock()
	left := l.o.LostAfter - time.Since(l.heard)
	if s := l.current; s != nil && s.stalled() { // it is us who do not listen: the driver waits for its events to be stored
		left = l.o.LostAfter
	}
	if left > 0 && !l.heard.IsZero() {
		l.timer.Reset(left)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.lose(agent.Errorf(agent.Unavailable, "the driver said nothing for %s", rounded(l.o.LostAfter)))
}

// lose takes the driver for lost. Its connection, if there is one, is closed.
func (l *Link) lose(reason error) {
	e := agent.AsError(reason)
	why := &agent.Error{Kind: e.Kind, Msg: e.Msg, Hint: e.Hint, Err: ErrLost}
	l.mu.Lock()
	if l.stand == lost || l.stand == closed {
		l.mu.Unlock()
		return
	}
	l.timer.Stop()
	s := l.current
	l.current = nil
	l.move(lost, why)
	l.sessions.Go(l.tell)
	l.mu.Unlock()
	if s != nil {
		s.cancel()
	}
	l.log.Warn("lost a driver", "error", e)
}

// tell calls State when it has not been told of where the Link stands. It runs on a goroutine of its own, which may be late: the last word is always told.
func (l *Link) tell() {
	if l.o.State == nil {
		return
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	l.mu.Lock()
	now, why := l.stand, l.why
	same := now == l.told && now != up
	l.told = now
	l.mu.Unlock()
	if !same && (now == up || now == lost) {
		l.o.State(now == up, why)
	}
}

// word notes that the driver has said something.
func (l *Link) word() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
}
