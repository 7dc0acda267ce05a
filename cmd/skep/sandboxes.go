package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/door"
	"github.com/skep-dev/skep/sandbox/keeper"
	"github.com/skep-dev/skep/store"
)

// sandboxOptions are the flags about sandboxes.
type sandboxOptions struct {
	kind   string // docker, podman, kubernetes, none or auto; auto unless given
	host   string // of the engine
	pool   int
	driver string        // file
	dir    string        // of the sockets
	hello  time.Duration // keeper.Options.Hello
	accept []string
	kube   kubeOptions
}

// The values of --sandbox that are no provider.
const (
	sandboxAuto = "auto"
	sandboxNone = "none"
)

func (o *sandboxOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.kind, "sandbox", or(os.Getenv("SKEP_SANDBOX"), sandboxAuto), "what makes sandboxes: docker, podman, kubernetes, none, or auto, which is docker where its socket is (SKEP_SANDBOX)")
	flags.StringVar(&o.host, "sandbox-host", os.Getenv("SKEP_SANDBOX_HOST"), "where Docker or Podman listens: unix:///PATH or tcp://HOST:PORT; where its own tools look unless given (SKEP_SANDBOX_HOST)")
	flags.IntVar(&o.pool, "sandbox-pool", 0, "sandboxes that are kept running for each environment in use, waiting for who will have them")
	flags.StringVar(&o.driver, "sandbox-driver", os.Getenv("SKEP_SANDBOX_DRIVER"), "`FILE` of the driver, a static program for Linux that runs in each sandbox; skep-driver beside this program, or this program itself, unless given (SKEP_SANDBOX_DRIVER)")
	flags.StringVar(&o.dir, "sandbox-dir", os.Getenv("SKEP_SANDBOX_DIR"), "`DIR` of the sockets of sandboxes, with a short path; below the data directory unless given (SKEP_SANDBOX_DIR)")
	var accept []string
	if env := os.Getenv("SKEP_SANDBOX_ACCEPT"); env != "" {
		accept = strings.Split(env, ",")
	}
	flags.StringSliceVar(&o.accept, "sandbox-accept", accept, "a `CAPABILITY` that sandboxes may lack though all need it, as skep sandbox providers names them (SKEP_SANDBOX_ACCEPT)")
	o.kube.register(flags)
}

// Bounds of what one request of a sandbox moves by the way out. They are wider than those of cells, for what is fetched may be a compiler.
const (
	boxBody  = 4 << 30
	boxTotal = 2 * time.Hour
)

// boxes is the keeper of sandboxes with what it is made of. It is the runtime's Boxes.
type boxes struct {
	keeper *keeper.Keeper
	rt     *runtime.Runtime // set before it is started
	st     *store.Store
	models *gateway.Gateway
	out    *egress.Egress
	secret []byte
	log    *slog.Logger
	from   []sandbox.Provider

	mu    sync.Mutex
	doors map[agent.SandboxID]*door.Door
	stop  context.CancelFunc
	ended chan struct{}
}

// openSandboxes returns the sandboxes of a server; nil when it has none. It starts nothing.
func openSandboxes(st *store.Store, o serveOptions, models *gateway.Gateway) (*boxes, error) {
	provider, err := o.sandbox.provider()
	if err != nil || provider == nil {
		return nil, err
	}
	b := &boxes{st: st, models: models, log: o.log, from: []sandbox.Provider{provider}, doors: map[agent.SandboxID]*door.Door{}}
	if err := b.open(o); err != nil {
		err = errors.Join(err, b.Close())
		if o.sandbox.kind != sandboxAuto {
			return nil, err
		}
		e := agent.AsError(err)
		o.log.Info("this server has no sandboxes", "reason", e.Msg, "hint", e.Hint) // who did not ask for them need not have them
		return nil, nil
	}
	return b, nil
}

// provider returns what makes sandboxes, or nil. It need not be there yet: that is found out when one is wanted.
func (o *sandboxOptions) provider() (sandbox.Provider, error) {
	name := o.kind
	switch name {
	case sandboxNone, "":
		return nil, nil
	case sandboxAuto:
		if o.host == "" && os.Getenv("DOCKER_HOST") == "" {
			if !exists("/var/run/docker.sock") {
				return nil, nil
			}
		}
		name = "docker"
	case "docker", "podman":
	case "kubernetes":
		if o.host != "" {
			return nil, usageError("--sandbox-host is where Docker or Podman listens; a cluster is named by --sandbox-kubeconfig FILE")
		}
		return o.kube.provider()
	default:
		return nil, usageError("--sandbox %s: use docker, podman, kubernetes, none or auto", o.kind)
	}
	p, err := docker.New(&docker.Options{Name: name, Host: o.host})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (b *boxes) open(o serveOptions) error {
	file, err := driverFile(o.sandbox.driver)
	if err != nil {
		return err
	}
	dir, err := o.sandbox.sockets(o.dir)
	if err != nil {
		return err
	}
	if b.secret, err = keptSecret(o.dir, "sandbox.key"); err != nil {
		return err
	}
	out, err := o.egress.options(o.log)
	if err != nil {
		return err
	}
	out.Limits = egress.Limits{RequestBytes: boxBody, ResponseBytes: boxBody, Total: boxTotal}
	b.out = egress.New(&out)
	if len(o.sandbox.accept) > 0 {
		o.log.Warn("sandboxes may lack what all need, as --sandbox-accept says", "capabilities", strings.Join(o.sandbox.accept, ", "))
	}
	b.keeper, err = keeper.New(&keeper.Options{
		Providers: b.from, Records: b.st, Dir: dir, Driver: file, Owner: sandboxOwner(b.secret),
		Door: b.door, Welcome: b.welcome, Accept: o.sandbox.accept, Pool: o.sandbox.pool, Hello: o.sandbox.hello, Log: o.log,
		Events: func(ctx context.Context, sb agent.Sandbox, first int64, list []driver.Event) error {
			return b.rt.BoxEvents(ctx, sb, first, list)
		},
		Changed: b.changed,
		Gone:    func(ctx context.Context, sb agent.Sandbox) (bool, error) { return b.rt.BoxGone(ctx, sb) },
		InUse:   func(ctx context.Context, sb agent.Sandbox) (bool, error) { return b.rt.BoxInUse(ctx, sb) },
	})
	return err
}

// sandboxOwner is the owner of the boxes of the server that has the secret.
func sandboxOwner(secret []byte) string {
	owner := sha256.Sum256(append([]byte("owner of sandboxes "), secret...))
	return "skep-" + hex.EncodeToString(owner[:8])
}

// start has the sandboxes looked after until Close. rt is set by then.
func (b *boxes) start(ctx context.Context) {
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx)) // runs go on for a while after ctx has ended
	b.ended = make(chan struct{})
	go func() {
		defer close(b.ended)
		if err := b.keeper.Run(ctx); err != nil {
			b.log.Error("sandboxes are not looked after any more", "error", err)
		}
	}()
}

// Close stops looking after sandboxes, which go on: the next server finds them again.
func (b *boxes) Close() (err error) {
	if b.stop != nil {
		b.stop()
		<-b.ended
	}
	b.mu.Lock()
	doors := b.doors
	b.doors = map[agent.SandboxID]*door.Door{}
	b.mu.Unlock()
	for _, d := range doors {
		err = errors.Join(err, d.Close())
	}
	if b.out != nil {
		err = errors.Join(err, b.out.Close())
	}
	for _, p := range b.from {
		err = errors.Join(err, p.Close())
	}
	return err
}

// askTimeout bounds what is read of the store when a door is made.
const askTimeout = 10 * time.Second

// door makes what answers at the socket of a box, for who uses it now. What was there for another is over.
func (b *boxes) door(sb agent.Sandbox, env agent.Environment) (http.Handler, string, error) {
	o, trace := &door.Options{Box: sb.ID, Secret: b.secret, Log: b.log}, ""
	if sb.For != "" { // else it waits in a pool, and nobody may do anything
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		way, err := b.rt.BoxWay(ctx, sb, env, b.out)
		if err != nil {
			return nil, "", err
		}
		if o.Key, err = door.ModelKey(b.secret, &sb); err != nil {
			return nil, "", err
		}
		o.Models, o.Caller, o.Way, o.Refused = b.models, way.Caller, wayOut{way}, way.Refused
		trace = way.Trace()
	}
	d, err := door.New(o)
	if err != nil {
		return nil, "", err
	}
	b.shut(sb.ID, d)
	return traced(d, trace), d.CA(), nil
}

// traced has h answer requests within a trace.
func traced(h http.Handler, trace string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(telemetry.WithTraceparent(r.Context(), trace)))
	})
}

// shut closes the door of a box. next takes its place, unless it is nil.
func (b *boxes) shut(id agent.SandboxID, next *door.Door) {
	b.mu.Lock()
	was := b.doors[id]
	if delete(b.doors, id); next != nil {
		b.doors[id] = next
	}
	b.mu.Unlock()
	if was == nil {
		return
	}
	if err := was.Close(); err != nil {
		b.log.Warn("the door of a sandbox", "sandbox", id, "error", err)
	}
}

// welcome says what the driver of a box is given each time that it connects.
func (b *boxes) welcome(_ context.Context, sb agent.Sandbox, _ agent.Environment) (driver.WelcomeBody, error) {
	if sb.For == "" {
		return driver.WelcomeBody{}, nil
	}
	key, err := door.ModelKey(b.secret, &sb)
	return driver.WelcomeBody{ModelKey: key, Env: keptFolders(sb)}, err
}

// keptFolders tells what runs in a pet where it can leave what is to outlive its volume.
func keptFolders(sb agent.Sandbox) map[string]string {
	if sb.Keep != agent.Pet {
		return nil
	}
	vars := map[string]string{"SKEP_MEMORY": path.Join(sandbox.Workspace, sandbox.Memory)}
	if sb.Session != "" {
		vars["SKEP_SESSION"] = path.Join(sandbox.Workspace, sandbox.Sessions, string(sb.Session))
	}
	return vars
}

// changed is told of each change of a record.
func (b *boxes) changed(ctx context.Context, sb agent.Sandbox) {
	switch sb.State {
	case agent.SandboxStopped, agent.SandboxDeleting, agent.SandboxLost, agent.SandboxFailed:
		b.shut(sb.ID, nil)
	}
	b.rt.BoxChanged(ctx, sb)
}

// wayOut is a runtime's way out as a door's.
type wayOut struct{ *runtime.BoxWay }

func (w wayOut) Client() door.Client { return w.BoxWay.Client() }

// Open is runtime.Boxes's.
func (b *boxes) Open(ctx context.Context, w runtime.BoxWant) (runtime.Box, error) {
	return boxOf(b.keeper.Open(ctx, keeper.Want{
		App: w.App, Agent: w.Agent, For: w.For, Session: w.Session, Run: w.Run, Keep: w.Keep, Environment: w.Environment, Trace: w.Trace,
	}))
}

// Get is runtime.Boxes's.
func (b *boxes) Get(ctx context.Context, app agent.App, id agent.SandboxID) (runtime.Box, error) {
	return boxOf(b.keeper.Get(ctx, app, id))
}

// Release is runtime.Boxes's.
func (b *boxes) Release(ctx context.Context, app agent.App, whose string) error {
	return b.keeper.Release(ctx, app, whose)
}

// boxOf returns a keeper's box as a runtime's.
func boxOf(b *keeper.Box, err error) (runtime.Box, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// sockets is the folder of the sockets, of which each box is given one. Its path has to be short, for that of a socket has at most 107 bytes (unix(7)): where
// the data directory's is not, it is a folder that goes when the machine starts, as the boxes do.
func (o *sandboxOptions) sockets(data string) (string, error) {
	if o.dir != "" {
		return filepath.Abs(o.dir)
	}
	data, err := filepath.Abs(data)
	if err != nil {
		return "", err
	}
	if dir := filepath.Join(data, "sandboxes"); len(dir) <= maxSockets {
		return dir, nil
	}
	sum := sha256.Sum256([]byte(data))
	name := "skep-" + hex.EncodeToString(sum[:6])
	if os.Geteuid() == 0 {
		return filepath.Join("/run", name), nil
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && len(dir) <= maxSockets-len(name)-1 {
		return filepath.Join(dir, name), nil
	}
	return "", &agent.Error{
		Kind: agent.Invalid, Msg: "the path of the data directory " + data + " is too long for the sockets of sandboxes, which are below it",
		Hint: "name a folder with a short path for them: skep serve --sandbox-dir /run/skep",
	}
}

// maxSockets is how long the path of the folder may be: below it are /ID.GENERATION/skep.sock.
const maxSockets = 107 - (1 + 26 + 1 + 4 + 1 + len(sandbox.Socket))
