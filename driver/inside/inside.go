// Package inside is the driver: what runs in a box as its main process. It dials the control plane by the socket that the box has, relays the box's own
// loopback to it, runs command-line agents by their backends, programs, files and git, and tells of all that in events which survive a lost connection.
//
// It trusts the control plane, and nothing else in the box, though all of it runs as one user: see docs/design/driver.md.
package inside

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// Options is what a driver is run with.
type Options struct {
	Boot     driver.Boot
	Version  string            // of the driver
	Backends []backend.Backend // that prompts can name
	Home     string            // of the user; os.UserHomeDir unless given
	Log      *slog.Logger      // slog.Default unless given
	Reap     bool              // adopt and reap what other processes leave behind; for the main process of a box only

	Lease     time.Duration // without the control plane everything ends after it; 30 minutes unless given
	Heartbeat time.Duration // driver.HeartbeatEvery unless given
	LostAfter time.Duration // a connection without a word for so long is given up; driver.LostAfter unless given
	Backoff   time.Duration // before the first try to connect again, doubled up to 100 times as much; 50 ms unless given
	Grace     time.Duration // between the steps by which a process is ended; 5 s unless given
	Ring      int           // bytes of events that wait; driver.RingBytes unless given
}

func (o *Options) fill() error {
	def(&o.Lease, 30*time.Minute)
	def(&o.Heartbeat, driver.HeartbeatEvery)
	def(&o.LostAfter, driver.LostAfter)
	def(&o.Backoff, 50*time.Millisecond)
	def(&o.Grace, 5*time.Second)
	def(&o.Ring, driver.RingBytes)
	def(&o.Boot.Relay, driver.RelayAddr)
	def(&o.Boot.Workdir, "/workspace")
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return agent.Wrap(agent.Invalid, err, "the driver has no home")
		}
		o.Home = home
	}
	if o.Boot.Version != driver.Version {
		return agent.Errorf(agent.Invalid, "the boot payload is of version %d of the protocol, and this driver of %d", o.Boot.Version, driver.Version)
	}
	if o.Boot.Socket == "" || o.Boot.Sandbox == "" || o.Boot.Token == "" {
		return agent.Errorf(agent.Invalid, "the boot payload lacks the socket, the sandbox or the token")
	}
	return nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// box is the driver at work.
type box struct {
	o       *Options
	log     *slog.Logger
	nonce   string
	base    []string // environment of the driver itself, with what the box adds
	relay   string   // address
	welcome atomic.Pointer[driver.WelcomeBody]
	ring    *ring
	procs   *procs
	works   *works
	turns   *turns
	execs   *execs
	handles map[string]handler
	repo    sync.Mutex    // held by commands that work on the repository
	over    chan struct{} // closed by DoShutdown
	overing sync.Once
	leave   chan struct{} // closed when the connection is to say goodbye, once all events are acknowledged
	fault   atomic.Pointer[driver.Fault]
}

// Run is the driver. It returns nil when the control plane or ctx has told it to end, after everything that it has started has; else why it had to end:
// it was refused, or the control plane was gone for longer than the lease.
func Run(ctx context.Context, o *Options) error {
	own := *o
	if err := own.fill(); err != nil {
		return err
	}
	b := &box{o: &own, log: own.Log, nonce: rand.Text(), over: make(chan struct{}), leave: make(chan struct{})}
	b.ring = newRing(own.Ring)
	b.procs = newProcs(b)
	b.works = newWorks(b)
	b.turns = newTurns(b)
	b.execs = newExecs(b)
	b.handles = b.handlers()
	if err := b.prepare(); err != nil {
		return err
	}
	return b.run(ctx)
}

// prepare makes what needs no connection.
func (b *box) prepare() error {
	if err := os.MkdirAll(b.o.Boot.Workdir, 0o755); err != nil {
		return agent.Wrap(agent.Invalid, err, "the workspace cannot be made")
	}
	dir, err := filepath.EvalSymlinks(b.o.Boot.Workdir)
	if err != nil {
		return agent.Wrap(agent.Invalid, err, "the workspace cannot be found")
	}
	b.o.Boot.Workdir = dir
	return b.environ()
}

func (b *box) run(ctx context.Context) error {
	life, stop := context.WithCancel(context.WithoutCancel(ctx)) // of what has to go on while things end
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	relay, err := listenRelay(b.o.Boot.Relay, b.o.Boot.Socket)
	if err != nil {
		return err
	}
	b.relay = relay.addr()
	b.addProxy()
	wg.Go(func() { relay.run(life) })
	wg.Go(func() { b.procs.watch(life) })
	wg.Go(func() { b.ring.run(life) })
	ended := make(chan error, 1)
	wg.Go(func() { ended <- b.connect(life) })

	select {
	case <-ctx.Done():
	case <-b.over:
	case err = <-ended:
		b.log.Warn("the connection to the control plane is over", "error", err)
		b.ring.abandon()
		b.endAll(life)
		return err
	}
	b.endAll(life)
	close(b.leave)
	select {
	case err = <-ended:
		if errors.Is(err, errBye) {
			err = nil
		}
	case <-time.After(b.o.Grace): // the control plane may be gone too
	}
	return err
}

// endAll ends all that was started, politely at first.
func (b *box) endAll(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { b.turns.end(ctx) })
	wg.Go(func() { b.execs.end() })
	wg.Wait()
	b.works.end()
	b.procs.killAll()
}

// shutdown makes run end.
func (b *box) shutdown() { b.overing.Do(func() { close(b.over) }) }

// emit tells of an event. It waits while too many events are not acknowledged.
func (b *box) emit(ctx context.Context, e driver.Event) {
	if e.Trace == "" {
		if e.Trace = traceOf(ctx); e.Trace == "" {
			e.Trace = b.o.Boot.TraceID
		}
	}
	b.ring.add(e)
}
