// Package runtime supervises agents: it keeps their code and records, answers calls, and carries runs from a message to a
// terminal status, with every event durable before anyone sees it.
package runtime

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/fair"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/runtime/sockets"
	"github.com/skep-dev/skep/sandbox/preview"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/vault/inject"
)

// Cells is what runs code: a *host.Host, or the scripted cells of package runtimetest. It is safe for concurrent use.
type Cells interface {
	// Prepare checks and compiles code. progress may be nil.
	Prepare(ctx context.Context, who host.Who, src agent.Source, progress func(host.Progress)) (host.Prepared, error)
	// Call runs one function in a fresh cell. The cell stops soon after ctx ends.
	Call(ctx context.Context, c host.Call) (host.Result, error)
	// Fetch gives an HTTP request to a script's fetch handler in a fresh cell.
	Fetch(ctx context.Context, c host.Call, req host.Request) (host.Response, agent.Usage, error)
	// Eval runs code of which nothing is kept.
	Eval(ctx context.Context, src agent.Source, c host.Call) (host.Result, error)
	// Bundle makes one text of a script, as Eval runs it, or says what is wrong with it.
	Bundle(ctx context.Context, who host.Who, src agent.Source) (host.Bundled, error)
}

// Options of a Runtime. A zero field means the default.
type Options struct {
	Log       *slog.Logger     // nil means nowhere
	Workers   int              // runs executed at once, about half of them of one app; eight for each processor, at least 32
	Grace     time.Duration    // how long runs may go on once Run is told to stop; 10 s
	BoxTold   int64            // bytes of events that a sandbox may tell in one run; 256 MiB
	Outside   time.Duration    // how long a run at rest keeps its cell for what it has asked of others; 10 s
	Limits    agent.Limits     // what an agent gets that asks for nothing; agent.DefaultLimits
	MaxLimits agent.Limits     // the most an agent may ask; agent.MaxLimits
	Packages  plugins.Limits   // of uploads
	LogLines  int              // console lines of stateless calls that may wait to be written; 10,000
	Tracer    trace.Tracer     // nil records nothing
	Ledger    *ledger.Ledger   // where usage is written down; nil means nowhere
	Quotas    *quota.Keeper    // what has counted the day's usage; a new one unless given
	Egress    *egress.Egress   // the way out for agents' requests; nil refuses them all
	Secrets   inject.Source    // of what goes into those; nil means that there are none
	Tools     *tools.Catalogue // that agents may call; nil means that there are none
	Models    Models           // that agents may ask; nil means that there are none
	Boxes     Boxes            // sandboxes that agents work in; nil means that there are none
	Previews  *preview.Links   // to ports of sandboxes; nil means that none are made
	Queue     int              // turns that may wait for one instance; 256
	Window    int              // bytes of recent events kept for each log somebody listens to; 1 MiB
}

// Runtime is safe for concurrent use. Its lock order: a lock of one part (queue, watches, records, feeds, a hub, a
// recorder, the logbook) is never held while another's is taken, but for feeds before hub; changes of one agent are
// held apart by a lock that is taken before all others.
type Runtime struct {
	began    time.Time
	store    *store.Store
	cells    Cells
	opts     Options
	log      *slog.Logger
	records  records
	queue    *queue
	watches  watches
	feeds    *feeds
	logbook  *logbook
	keeper   *durable.Keeper
	begins   *fair.Gate // turns
	pace     *pacer
	underWay sync.Map     // of namedCall: those that have left their turn
	sqlHeld  atomic.Int64 // bytes of the SQL of instances that have no turn
	sockets  *sockets.Hub
	quotas   *quota.Keeper
	injector *inject.Injector // nil without a way out
	refusals refusals
	stats    counters

	images    images
	sources   sources
	manifests manifests
	asking    questions
	boxes     boxes
	flying    sync.WaitGroup // what runs have asked of others, and commits of theirs
	endings   atomic.Int64   // of runs

	environments sync.RWMutex // held over the commit that gives an agent one, and over one that deletes it; before the lock of the agent

	mu       sync.Mutex
	active   map[agent.RunID]*execution
	stopping bool

	disowned chan struct{} // has one when agents were deleted
}

// New returns a runtime that answers calls at once and executes runs while Run is running. It starts nothing.
func New(st *store.Store, cells Cells, o *Options) *Runtime {
	opts := Options{}
	if o != nil {
		opts = *o
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Tracer == nil {
		opts.Tracer = telemetry.None()
	}
	opts.Log = telemetry.Logger(opts.Log)
	opts.Workers = cmp.Or(opts.Workers, max(32, 8*goruntime.GOMAXPROCS(0)))
	opts.Grace = cmp.Or(opts.Grace, 10*time.Second)
	opts.Limits = opts.Limits.Or(agent.DefaultLimits())
	opts.MaxLimits = opts.MaxLimits.Or(agent.MaxLimits())
	opts.Outside = cmp.Or(opts.Outside, 10*time.Second)
	opts.BoxTold = cmp.Or(opts.BoxTold, 256<<20)
	opts.LogLines = cmp.Or(opts.LogLines, 10_000)
	opts.Window = cmp.Or(opts.Window, 1<<20)
	r := &Runtime{
		store: st, cells: cells, opts: opts, log: opts.Log, began: time.Now(), pace: newPacer(),
		queue: newQueue(opts.Workers), active: make(map[agent.RunID]*execution), disowned: make(chan struct{}, 1),
	}
	if r.quotas = opts.Quotas; r.quotas == nil {
		o := &quota.Options{}
		if opts.Ledger != nil {
			o.Note = opts.Ledger.Append
		}
		r.quotas = quota.New(quota.Start{Day: time.Now()}, o)
	}
	r.injector = newInjector(&opts)
	r.records.changing.seed = maphash.MakeSeed()
	r.feeds = newFeeds(st, opts.Window)
	r.sockets = sockets.New(nil)
	r.begins = fair.New(briefPlaces*goruntime.GOMAXPROCS(0), &fair.Options{Waiting: briefLine, What: "a turn"})
	r.keeper = durable.New(st.Instances(), &durable.Options{
		Log: opts.Log, Waiting: opts.Queue, Committed: r.committed, Alarm: r.alarm, Receive: r.receive, Refused: r.refusedMessage,
	})
	r.logbook = newLogbook(opts.LogLines, r.appendLog)
	return r
}

// Run recovers what the last process left, then executes queued runs until ctx ends. It then starts no more, gives the
// ones that run Options.Grace to end, stops them, and returns when everything it started has ended. It is called once.
func (r *Runtime) Run(ctx context.Context) error {
	if err := r.recover(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	hard, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var work, logs sync.WaitGroup
	logsDone := make(chan struct{})
	logs.Go(func() { r.logbook.run(hard, logsDone) })
	work.Go(func() { r.dropStates(ctx) })
	work.Go(func() { r.sweepModels(ctx) })
	work.Go(func() { r.keeper.Run(ctx) })
	r.dispatch(ctx, hard, &work)

	r.stopSoon()
	idle := make(chan struct{})
	go func() { work.Wait(); r.flying.Wait(); close(idle) }()
	grace := time.NewTimer(r.opts.Grace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
		stop(errStopping)
		r.keeper.Hasten()
		<-idle
	}
	close(logsDone)
	logs.Wait()
	return nil
}

// stopSoon has runs give up their cells where they next come to rest.
func (r *Runtime) stopSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	for _, x := range r.active {
		x.mu.Lock()
		x.stopping = true
		x.pokeLocked()
		x.mu.Unlock()
		x.ask()
	}
}

// dispatch starts queued runs, as many at once as there are workers, until ctx ends. The runs themselves end with hard.
func (r *Runtime) dispatch(ctx, hard context.Context, work *sync.WaitGroup) {
	for t := r.queue.pop(ctx); t != nil; t = r.queue.pop(ctx) {
		work.Go(func() {
			free := sync.OnceFunc(func() { r.queue.leave(t) })
			defer free()
			a, wait := r.admitRun(hard, t)
			if wait > 0 { // with no worker, and before it counts as begun
				r.queue.later(t)
				work.Go(func() {
					pause(ctx, wait)
					r.queue.again(t)
				})
				return
			}
			leave := sync.OnceFunc(func() { r.queue.done(t); free() })
			defer leave()
			r.execute(hard, t, a, leave)
		})
	}
}
