// Package worker runs agents' code in other processes: one for each app, and a short-lived one for each preparation.
//
// A Pool is what a *host.Host is to its callers. It starts workers on demand from this same program, which must call Main
// when it is run as Options.Args say. A worker holds a host.Host, confines itself (confine_linux.go) before it sees any
// code, and then knows nothing but its connection to the pool: no environment, no network, no files but compiled code.
// What a cell asks of its host crosses back and is answered here, where secrets are. Whatever a worker sends is checked
// like a stranger's: one that breaks the protocol is killed.
//
// The lock order is Pool.mu, process.mu, link.mu; none is held while a call is handled.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/fair"
)

// Options adjusts a Pool. The zero value is the default.
type Options struct {
	Host    host.Options  // of the host in each worker; 256 MiB of images unless it says otherwise
	Args    []string      // by which this program is a worker; "worker" unless given
	Workers int           // processes at once; 64
	Idle    time.Duration // without a call, after which a worker is stopped; two minutes
	Memory  int64         // bytes of memory that a worker may write; 8 GiB
	Total   int64         // that all may use together; three quarters of the machine's
	Prepare PrepareLimits
	Log     *slog.Logger // nil means nowhere

	noFiles bool                 // tests: as if there were no landlock
	measure func(*process) int64 // of its memory; tests have their own
}

// PrepareLimits bounds what preparing one piece of code may cost. Zero fields mean the defaults.
type PrepareLimits struct {
	CPU    time.Duration // whole seconds; 30 s
	Wall   time.Duration // waiting for other preparations not included; one minute
	Memory int64         // bytes that are written; 3 GiB
}

// Pool runs code in worker processes. It is safe for concurrent use.
type Pool struct {
	opts     Options
	log      *slog.Logger
	ctx      context.Context // ends with the pool; it carries nothing
	stop     context.CancelFunc
	children *fair.Gate // for preparations
	starts   starter
	ranks    bool           // whether workers' priorities follow what they use
	all      sync.WaitGroup // of processes

	mu       sync.Mutex
	closed   bool
	watching bool
	workers  map[agent.App]*process
	failures map[agent.App]failures
	prepared map[sourceKey]host.Prepared
	underWay map[preparing]*preparation
}

// failures is how a tenant's workers fared that ended unasked.
type failures struct {
	count int
	next  time.Time // when the next may start
}

// New returns a pool. It starts no process. It returns an Unavailable error where processes cannot be confined.
func New(o *Options) (*Pool, error) {
	if !confinable {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: "worker processes need Linux", Hint: "use --isolation inline"}
	}
	p := &Pool{
		workers: map[agent.App]*process{}, failures: map[agent.App]failures{}, prepared: map[sourceKey]host.Prepared{},
		underWay: map[preparing]*preparation{},
	}
	if o != nil {
		p.opts = *o
	}
	if p.opts.Args == nil {
		p.opts.Args = []string{"worker"}
	}
	p.opts.Workers = or(p.opts.Workers, 64)
	p.opts.Idle = or(p.opts.Idle, 2*time.Minute)
	p.opts.Memory = or(p.opts.Memory, 8<<30)
	if p.opts.Total == 0 {
		p.opts.Total = roomForAll()
	}
	if p.opts.measure == nil {
		p.opts.measure = footprint
	}
	p.opts.Host.Images = or(p.opts.Host.Images, 256<<20)
	l := &p.opts.Prepare
	l.CPU, l.Wall, l.Memory = or(l.CPU, 30*time.Second), or(l.Wall, time.Minute), or(l.Memory, 3<<30)
	if p.log = p.opts.Log; p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	for _, path := range []*string{&p.opts.Host.CacheDir, &p.opts.Host.Python} { // workers live elsewhere
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, agent.Wrap(agent.Invalid, err, "cannot tell where "+*path+" is")
		}
		*path = abs
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if p.ranks = mayRank(); !p.ranks {
		p.log.Info("worker processes all have the same priority, however much they use: to raise one again needs CAP_SYS_NICE, or LimitNICE=+5 in a systemd unit")
	}
	p.children = fair.New(max(1, goruntime.GOMAXPROCS(0)/2), &fair.Options{Waiting: maxPreparing, What: "code to be prepared"})
	return p, nil
}

// Close ends every process and waits for them. Calls must have ended; those that have not, fail. It may be called twice.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.all.Wait()
	p.starts.close()
	return nil
}

// Call is host.Host's. What the code asks of a clock or a randomness of the call's own crosses each time.
func (p *Pool) Call(ctx context.Context, c host.Call) (host.Result, error) {
	res, err := p.do(ctx, frameCall, &callMessage{call: c})
	return host.Result{Output: res.output, Usage: res.usage, Suspended: res.suspended}, err
}

// Fetch is host.Host's.
func (p *Pool) Fetch(ctx context.Context, c host.Call, req host.Request) (host.Response, agent.Usage, error) {
	res, err := p.do(ctx, frameFetch, &callMessage{call: c, request: req})
	return res.response, res.usage, err
}

// Eval is host.Host's.
func (p *Pool) Eval(ctx context.Context, src agent.Source, c host.Call) (host.Result, error) {
	res, err := p.do(ctx, frameEval, &callMessage{call: c, source: src})
	return host.Result{Output: res.output, Usage: res.usage, Suspended: res.suspended}, err
}

// Bundle makes one text of a script, in the worker that runs it.
func (p *Pool) Bundle(ctx context.Context, who host.Who, src agent.Source) (host.Bundled, error) {
	res, err := p.do(ctx, frameBundle, &callMessage{call: host.Call{Tenant: who.App, Agent: who.Agent, Weight: who.Weight}, source: src})
	if err != nil {
		return host.Bundled{}, err
	}
	return host.NewBundled(res.output.Body, res.response.Body), nil
}

// do has a call done by its tenant's worker. The result is never nil.
func (p *Pool) do(ctx context.Context, k kind, m *callMessage) (*resultMessage, error) {
	w, err := p.acquire(ctx, m.call.Tenant)
	if err != nil {
		return &resultMessage{}, err
	}
	defer p.release(w)
	return w.do(ctx, k, m)
}

// acquire returns the tenant's worker when it is ready, and starts one if there is none. Release it.
func (p *Pool) acquire(ctx context.Context, tenant agent.App) (*process, error) {
	w, err := p.use(tenant)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.ready:
		return w, nil
	default:
	}
	select {
	case <-w.ready:
		return w, nil
	case <-w.ended:
		err = w.gone()
	case <-ctx.Done():
		err = agent.Wrap(agent.Cancelled, context.Cause(ctx), "cancelled while a worker process was starting")
	}
	p.release(w)
	return nil, err
}

func (p *Pool) use(tenant agent.App) (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, agent.Errorf(agent.Unavailable, "the host is closing")
	}
	w := p.workers[tenant]
	if w != nil && w.link.isDead() {
		p.forget(w)
		w = nil
	}
	if w == nil {
		if len(p.workers) >= p.opts.Workers && !p.evict() {
			return nil, &agent.Error{
				Kind: agent.Unavailable, Limit: agent.LimitConcurrency, Msg: "too many apps are busy at once",
				Hint: "try again in a moment",
			}
		}
		w = newProcess(p, tenant, p.failures[tenant].next)
		p.workers[tenant] = w
		p.all.Go(w.run)
		if !p.watching {
			p.watching = true
			p.all.Go(p.watch)
			if p.ranks {
				p.all.Go(p.rankWorkers)
			}
		}
	}
	w.users++
	w.idle.Stop()
	return w, nil
}

func (p *Pool) release(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.users--; w.users == 0 {
		w.used = time.Now()
		if p.workers[w.tenant] == w {
			w.idle.Reset(p.opts.Idle)
		}
	}
}

// retire stops a worker that is idle.
func (p *Pool) retire(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.users == 0 && p.workers[w.tenant] == w {
		p.dismiss(w)
	}
}

// Worker is a worker process that is there now.
type Worker struct {
	App agent.App
	PID int
}

// Workers lists the worker processes that are ready, in no order.
func (p *Pool) Workers() (list []Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for app, w := range p.workers {
		select {
		case <-w.ready:
			if !w.link.isDead() {
				list = append(list, Worker{app, int(w.pid.Load())})
			}
		default:
		}
	}
	return list
}

// evict stops the worker that has been idle for the longest time, and reports false when all are busy. The caller holds
// the lock.
func (p *Pool) evict() bool {
	var oldest *process
	for _, w := range p.workers {
		if w.users == 0 && (oldest == nil || w.used.Before(oldest.used)) {
			oldest = w
		}
	}
	if oldest != nil {
		p.dismiss(oldest)
	}
	return oldest != nil
}

func (p *Pool) dismiss(w *process) {
	delete(p.workers, w.tenant)
	delete(p.failures, w.tenant)
	w.link.fail(errRetired)
}

var errRetired = errors.New("the worker process was idle")

// How workers that keep ending are held back: the first may be followed at once.
const (
	steady     = 10 * time.Second // a worker that lived for that long did not end at its start
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// forget drops a worker that has ended, and settles when the tenant's next one may start. The caller holds the lock.
func (p *Pool) forget(w *process) {
	w.idle.Stop()
	if p.workers[w.tenant] != w {
		return // it was dismissed, or forgotten already
	}
	delete(p.workers, w.tenant)
	f := failures{count: 1}
	if time.Since(w.made) < steady {
		f.count += p.failures[w.tenant].count
	}
	if f.count > 1 {
		f.next = time.Now().Add(min(longPause, firstPause<<min(f.count-2, 10)))
	}
	p.failures[w.tenant] = f
}

func or[T comparable](a, b T) T {
	var zero T
	if a == zero {
		return b
	}
	return a
}
