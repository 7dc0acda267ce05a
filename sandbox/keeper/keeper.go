// Package keeper keeps sandboxes: it decides when a box of package sandbox is made, started, stopped and deleted, and owns the socket by which its driver
// reaches the control plane. What it knows is in the store, and every step of a sandbox's life is stored such that a crash between any two leaves no box
// that nobody knows of and no two for one sandbox. docs/design/sandboxes.md tells how.
package keeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/sandbox"
)

// Records is where sandboxes are kept. *store.Store is one.
type Records interface {
	// PutSandbox stores a sandbox that is new. An Exists error says that the id, or For of that app, is another's; an Exhausted one that the app has most.
	PutSandbox(ctx context.Context, rec agent.SandboxRecord, most int) error
	Sandbox(ctx context.Context, id agent.SandboxID) (agent.SandboxRecord, error)
	// SandboxFor returns the one that is whose's and not being deleted.
	SandboxFor(ctx context.Context, app agent.App, whose string) (agent.SandboxRecord, error)
	// ChangeSandbox applies change in a transaction, which may call it more than once. An error of change changes nothing.
	ChangeSandbox(ctx context.Context, id agent.SandboxID, change func(*agent.SandboxRecord) error) (agent.SandboxRecord, error)
	// DropSandbox forgets one that is being deleted.
	DropSandbox(ctx context.Context, id agent.SandboxID) error
	// AllSandboxes lists those of all apps, also of apps that were deleted.
	AllSandboxes(ctx context.Context, page agent.Page) (list []agent.SandboxRecord, next string, err error)
	// Environment returns NAME, or NAME@REVISION, which stays readable when the environment was deleted.
	Environment(ctx context.Context, app agent.App, name string) (agent.Environment, error)
	// PutBlobFrom stores what r has and returns its digest and size. An error of r that has a kind keeps it.
	PutBlobFrom(ctx context.Context, r io.Reader) (agent.Digest, int64, error)
	// OpenBlob returns a blob, whole, which the caller closes.
	OpenBlob(ctx context.Context, d agent.Digest) (io.ReadSeekCloser, error)
	// Taken returns the number of the newest event of a source that is stored.
	Taken(ctx context.Context, app agent.App, source string) (int64, error)
}

// Options says what a Keeper works with.
type Options struct {
	Providers []sandbox.Provider // the first is the default
	Records   Records
	Dir       string // absolute; of the sockets, a folder for each box. Only this server may have it, and it has to stay while boxes do
	Driver    string // file of the static driver on the host
	Owner     string // of this server's boxes: what is labelled so and not known here is deleted

	// Door answers all that comes by the socket of a box but the driver's own connections. It returns the certificate authority, in PEM, that the box is to
	// trust, which is always the same for one sandbox. It is asked anew when another run uses a sandbox. nil answers 404.
	Door func(sb agent.Sandbox, env agent.Environment) (http.Handler, string, error)
	// Welcome says what the driver of a box is given each time that it connects: it is told anew when another run uses the sandbox. Key and Acked are filled
	// in, and so are the variables of the environment, unless they are there. nil gives it these.
	Welcome func(ctx context.Context, sb agent.Sandbox, env agent.Environment) (driver.WelcomeBody, error)
	// Events stores events of a box, the first of which has number first, under Sandbox.Source and each once, as Store.AppendOnce does. After an error, and
	// after a crash, they come again. Required.
	Events func(ctx context.Context, sb agent.Sandbox, first int64, list []driver.Event) error
	// Changed is told of each change of a sandbox but of when it was used, after it is stored. It must not wait for long. nil is fine.
	Changed func(ctx context.Context, sb agent.Sandbox)
	// Gone reports whether what a sandbox is for is no more: then it is deleted. Each sweep asks. nil says no.
	Gone func(ctx context.Context, sb agent.Sandbox) (bool, error)
	// InUse reports whether the run that a sandbox is used by is under way, though it may wait for a person: then the sandbox is not idle. It is asked when
	// the sandbox would be, about one that has a run. nil says no.
	InUse func(ctx context.Context, sb agent.Sandbox) (bool, error)

	Checkpoint int64 // bytes of a pet's checkpoint; 1 GiB unless given

	Accept []string      // capabilities of Needs that boxes may lack, but for SocketMount
	Pool   int           // boxes that are kept ready for each environment in use; none unless given
	Most   int           // sandboxes of an app, with those in pools; 100 unless given
	Starts int           // boxes that are made and started at once; two for each processor unless given
	Hello  time.Duration // how long a driver may take from its start until it is ready; 60 s unless given
	Setup  time.Duration // how long a setup script may take; 10 minutes unless given
	Every  time.Duration // between two sweeps; a minute unless given
	Log    *slog.Logger  // nil says nothing
	Now    func() time.Time
}

// Times that nobody sets.
const (
	quick   = 30 * time.Second // for one question to a provider, or a deletion
	making  = 2 * time.Minute  // for making a box, or starting it
	grace   = 5 * time.Second  // for a box to end politely
	atOnce  = 8                // boxes that a sweep looks after at once
	pathMax = 107              // bytes of the path of a Unix socket, on Linux
)

// Keeper keeps sandboxes. It is safe for concurrent use. Run has to run while it is used.
type Keeper struct {
	o      Options
	log    *slog.Logger
	now    func() time.Time
	secret []byte        // of the keys and tokens of drivers
	slots  chan struct{} // one for each box that is being made or started

	// Lock order: opens, boxes, mu.
	opens lines // by app and For: who opens a sandbox
	boxes lines // by id: who makes, starts and deletes its boxes
	probe probes
	pools pools

	mu    sync.Mutex
	lives map[agent.SandboxID]*live // boxes whose sockets are served
	due   map[agent.SandboxID]bool  // sandboxes that Run is to look after
	over  bool                      // Run has ended
	wake  chan struct{}             // holds one when due has some
}

// New returns a keeper of the sandboxes that are in o.Records. It starts nothing.
func New(o *Options) (*Keeper, error) {
	k := &Keeper{o: *o, log: o.Log, now: o.Now, lives: map[agent.SandboxID]*live{}, due: map[agent.SandboxID]bool{}, wake: make(chan struct{}, 1)}
	def(&k.o.Most, 100)
	def(&k.o.Checkpoint, 1<<30)
	def(&k.o.Starts, 2*runtime.GOMAXPROCS(0))
	def(&k.o.Hello, time.Minute)
	def(&k.o.Setup, 10*time.Minute)
	def(&k.o.Every, time.Minute)
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	if k.now == nil {
		k.now = time.Now
	}
	k.slots = make(chan struct{}, k.o.Starts)
	k.pools.wake = make(chan struct{}, 1)
	if err := checkAccept(o.Accept); err != nil {
		return nil, err
	}
	switch longest := filepath.Join(o.Dir, string(agent.NewSandboxID(time.Now()))+".9999", sandbox.Socket); {
	case len(o.Providers) == 0 || o.Records == nil || o.Events == nil || o.Owner == "":
		return nil, agent.Errorf(agent.Internal, "a keeper needs providers, records, an owner, and somewhere to put events")
	case !filepath.IsAbs(o.Dir) || !filepath.IsAbs(o.Driver):
		return nil, agent.Errorf(agent.Invalid, "the folder of the sockets of sandboxes, %q, and the driver, %q, have to be absolute paths: they are mounted", o.Dir, o.Driver)
	case len(longest) > pathMax:
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("the folder %s is too deep for sockets: a path below it would have %d bytes, and %d are allowed", o.Dir, len(longest), pathMax),
			Hint: "name a folder with a shorter path, such as /run/skep",
		}
	}
	var err error
	k.secret, err = openDir(o.Dir)
	return k, err
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// openDir makes the folder of the sockets, which nobody else may enter, and returns the secret that is kept there.
func openDir(dir string) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, agent.Wrap(agent.Unavailable, err, "cannot open the folder of the sockets of sandboxes, "+dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fail(err)
	}
	file := filepath.Join(dir, "secret")
	b, err := os.ReadFile(file)
	switch {
	case err == nil && len(b) == 32:
		return b, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fail(err)
	}
	b = make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	if err := os.WriteFile(file+".new", b, 0o600); err != nil {
		return fail(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fail(err)
	}
	return b, nil
}

// Run looks after sandboxes until ctx has ended: at once, then from time to time, and whenever there is something to do. Boxes outlive it: their drivers come
// back to the next Keeper of the same records and folder.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.shut()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.refills(ctx) })
	k.tidy(ctx)
	k.sweep(ctx)
	tick, look := time.NewTicker(k.o.Every), time.NewTicker(lookSilent)
	defer tick.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			k.sweep(ctx)
		case <-look.C:
			k.silent(ctx)
		case <-k.wake:
			k.attend(ctx)
		}
	}
}

// shut stops serving the sockets. What runs in boxes goes on, and tries to connect again.
func (k *Keeper) shut() {
	k.mu.Lock()
	k.over = true
	lives := k.lives
	k.lives = map[agent.SandboxID]*live{}
	k.mu.Unlock()
	for _, lv := range lives {
		lv.close() // first, so that no driver is told to end
		lv.link.Close(alreadyOver())
		lv.link.Wait()
	}
}

// poke has Run look after a sandbox.
func (k *Keeper) poke(id agent.SandboxID) {
	k.mu.Lock()
	k.due[id] = true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// change changes a sandbox in the store and tells of it. gen fences: a sandbox of another generation is left alone.
func (k *Keeper) change(ctx context.Context, id agent.SandboxID, gen int64, change func(*agent.SandboxRecord) error) (agent.SandboxRecord, error) {
	var was agent.Sandbox
	rec, err := k.o.Records.ChangeSandbox(ctx, id, func(rec *agent.SandboxRecord) error {
		if gen != 0 && rec.Generation != gen {
			return fenced(&rec.Sandbox)
		}
		was = rec.Sandbox
		return change(rec)
	})
	if err != nil {
		return rec, err
	}
	k.mu.Lock()
	if lv := k.lives[id]; lv != nil && lv.generation == rec.Generation {
		lv.rec.Store(&rec)
	}
	k.mu.Unlock()
	told := rec.Sandbox
	was.Used = told.Used
	if k.o.Changed != nil && was != told {
		k.o.Changed(ctx, rec.Sandbox)
	}
	return rec, nil
}

// step is change from one state.
func (k *Keeper) step(ctx context.Context, rec *agent.SandboxRecord, from agent.SandboxState, change func(*agent.SandboxRecord)) (agent.SandboxRecord, error) {
	return k.change(ctx, rec.ID, rec.Generation, func(rec *agent.SandboxRecord) error {
		if rec.State != from {
			return fenced(&rec.Sandbox)
		}
		change(rec)
		return nil
	})
}

// put stores a new sandbox and tells of it.
func (k *Keeper) put(ctx context.Context, rec agent.SandboxRecord, most int) error {
	err := k.o.Records.PutSandbox(ctx, rec, most)
	if err == nil && k.o.Changed != nil {
		k.o.Changed(ctx, rec.Sandbox)
	}
	return err
}
