// Package host runs agent code: it prepares what authors upload, keeps images of it, and makes a fresh cell for each call.
//
// Host is the seam to the rest of Skep. It speaks bytes, records of package agent and host calls only, so that cells can
// run in another process. Below it, package cell runs WebAssembly, package extism guests of the Extism ABI, package
// script guests in JavaScript and TypeScript, package python guests in Python.
package host

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
	"github.com/skep-dev/skep/host/fair"
	"github.com/skep-dev/skep/host/python"
	"github.com/skep-dev/skep/host/script"
	"github.com/skep-dev/skep/host/wasi"
)

// Options adjusts a Host. The zero value is the default.
type Options struct {
	// Load finds the code of a digest that is not in memory. nil means there is no such code.
	Load func(ctx context.Context, d agent.Digest) (agent.Source, error)

	// Loaded is told of each loading, before whoever waits for it goes on. nil means that nobody wants to know.
	Loaded func(Loaded)

	CacheDir string // directory for compiled code; it is trusted like the program. "" keeps it in memory
	Python   string // file of the Python interpreter, see package python; "" when agents in Python are not to be run
	Copy     bool   // copy images instead of mapping them
	Images   int64  // bytes of images kept in memory; 0 means 1 GiB
	Seed     []byte // secret, of the randomness that modules and Python draw while their images are made, so that it is the same each time; nil draws anew
	Memory   int64  // bytes of memory that all cells may have together; 0 means no bound
	Cells    int    // cells that may live at once for calls from outside; 0 means 256
	Waiting  int    // calls that may wait for a cell, half of them of one app; 0 means four for each cell
	Prepares int    // pieces of code that are compiled at once; 0 means half of the processors, so that calls find one

	// Loading bounds what code may do while it is initialised, once, for its image. Zero fields mean 5 s of CPU and the
	// defaults of calls.
	Loading agent.Limits

	// Prelude is that of scripts in another version of Skep, for tests of what an upgrade does; nil for this one's.
	Prelude []byte
}

// Host runs agent code. It is safe for concurrent use.
type Host struct {
	opts    Options
	cells   *cell.Engine
	scripts *script.Engine
	pythons pythons
	images  *images
	gates   []*fair.Gate // by depth of the call: who waits for a cell deeper down never holds a place that it needs

	preparing *fair.Gate // takes long at times, so what is quick does not stand in line with it:
	bundling  *fair.Gate // of code that runs once
	loadings  loadings
	bundles   bundles
}

// New starts the engines, which takes about half a second the first time and some 50 ms with a warm CacheDir.
func New(ctx context.Context, o *Options) (*Host, error) {
	if o == nil {
		o = &Options{}
	}
	h := &Host{opts: *o}
	if h.opts.Cells == 0 {
		h.opts.Cells = 256
	}
	if h.opts.Waiting == 0 {
		h.opts.Waiting = 4 * h.opts.Cells
	}
	if h.opts.Images == 0 {
		h.opts.Images = 1 << 30
	}
	h.opts.Loading = h.opts.Loading.Or(agent.Limits{CPU: 5 * time.Second})
	for depth := range maxDepth + 1 {
		cells := h.opts.Cells
		if depth > 0 {
			cells = max(cells/4, 1)
		}
		h.gates = append(h.gates, fair.New(cells, &fair.Options{Waiting: h.opts.Waiting, What: "a cell"}))
	}
	if h.opts.Prepares == 0 {
		h.opts.Prepares = max(1, goruntime.GOMAXPROCS(0)/2)
	}
	h.bundling = fair.New(goruntime.GOMAXPROCS(0), &fair.Options{Waiting: h.opts.Waiting, What: "code to be bundled"})
	h.preparing = fair.New(h.opts.Prepares, &fair.Options{Waiting: maxPreparing, What: "code to be prepared"})
	h.images = newImages(h.opts.Images)
	var err error
	funcs := slices.Concat(wasi.Funcs(), extism.Funcs(), script.Funcs())
	if h.cells, err = cell.New(ctx, funcs, &cell.Options{CacheDir: o.CacheDir, Copy: o.Copy, Memory: o.Memory}); err != nil {
		return nil, err
	}
	if h.scripts, err = script.New(ctx, h.cells, &script.Options{Prelude: h.opts.Prelude}); err != nil {
		return nil, errors.Join(err, h.cells.Close(ctx))
	}
	h.pythons.file = o.Python
	h.pythons.opts = func() *python.Options { return &python.Options{Random: h.imagingRandom("python"), Now: imagingNow} }
	return h, nil
}

// Close frees everything. Calls must have ended.
func (h *Host) Close(ctx context.Context) error {
	return errors.Join(h.images.close(ctx), h.scripts.Close(ctx), h.pythons.close(ctx), h.cells.Close(ctx))
}

func (h *Host) load(ctx context.Context, who Who, src agent.Source, progress func(Progress)) (guest, error) {
	total := int64(0)
	for _, b := range src.Files {
		total += int64(len(b))
	}
	switch src.Kind {
	case agent.Wasm:
		progress(Progress{Stage: "compile", Total: total})
		a, err := extism.Load(ctx, h.cells, src.Files[src.Main], &extism.LoadOptions{Env: h.imagingEnv(who, src)})
		progress(Progress{Stage: "compile", Done: total, Total: total})
		return wasmGuest{a}, err
	case agent.Script:
		progress(Progress{Stage: "bundle", Total: total})
		a, err := h.scripts.Load(ctx, src, &script.LoadOptions{Env: h.loadingEnv(who)})
		progress(Progress{Stage: "bundle", Done: total, Total: total})
		return scriptGuest{a}, err
	case agent.Python:
		progress(Progress{Stage: "import", Total: total})
		eng, err := h.pythons.engine(ctx, h.cells)
		if err != nil {
			return nil, err
		}
		a, err := eng.Load(ctx, src, h.imagingEnv(who, src))
		progress(Progress{Stage: "import", Done: total, Total: total})
		return pythonGuest{a}, err
	}
	return nil, agent.Errorf(agent.Invalid, "code of an unknown kind")
}

// imagingNow is when images are made: as for scripts it is always the same. Go takes a clock that stands at 0 for a broken one.
func imagingNow() time.Time { return time.Unix(1, 0).UTC() }

// imagingEnv has code initialise itself in the same way each time, so that a run that is played again in a cell of another image does
// the same: Go orders its maps by what it drew then, Python what is in its sets.
func (h *Host) imagingEnv(who Who, src agent.Source) cell.Env {
	env := h.loadingEnv(who)
	env.Now, env.Random = imagingNow, h.imagingRandom(string(agent.DigestOf(src.Files[src.Main])))
	return env
}

// imagingRandom is nil, for the system's, where there is no seed.
func (h *Host) imagingRandom(of string) io.Reader {
	if h.opts.Seed == nil {
		return nil
	}
	return rand.NewChaCha8(sha256.Sum256(append([]byte(of), h.opts.Seed...)))
}

func (h *Host) loadingEnv(who Who) cell.Env {
	return cell.Env{Tenant: who.App, Agent: who.Agent, Weight: who.Weight, Limits: h.opts.Loading}
}

// Call runs one function in a fresh cell. The usage is filled in even when the call failed. The cell stops soon after ctx
// ends.
func (h *Host) Call(ctx context.Context, c Call) (Result, error) {
	var res Result
	err := h.with(ctx, c, func(g guest) (err error) {
		if c.Waiting != nil {
			res, err = suspends(ctx, g, c)
			return err
		}
		res.Output, res.Usage, err = g.Call(ctx, c)
		return err
	})
	return res, err
}

// Fetch gives an HTTP request to a script's fetch handler in a fresh cell.
func (h *Host) Fetch(ctx context.Context, c Call, req Request) (Response, agent.Usage, error) {
	if c.Waiting != nil {
		return Response{}, agent.Usage{}, errNotSuspended()
	}
	var res Response
	var usage agent.Usage
	err := h.with(ctx, c, func(g guest) (err error) {
		res, usage, err = g.Fetch(ctx, c, req)
		return err
	})
	return res, usage, err
}

// Eval runs code in text of which nothing is kept. An empty function means a script's default export, or main in Python.
func (h *Host) Eval(ctx context.Context, src agent.Source, c Call) (Result, error) {
	if src.Kind != agent.Script && src.Kind != agent.Python {
		return Result{}, agent.Errorf(agent.Invalid, "only code in text can be run without storing it")
	}
	if c.Waiting != nil && src.Kind != agent.Script {
		return Result{}, errNotSuspended()
	}
	leave, err := h.enter(ctx, c)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	var res Result
	if src.Kind == agent.Script {
		b, err := h.bundle(ctx, c, src)
		if err != nil {
			return res, err
		}
		r, err := h.scripts.RunBundle(ctx, b, scriptCall(ctx, c))
		return Result{Output: r.Output, Usage: r.Usage, Suspended: r.Suspended}, err
	}
	eng, err := h.pythons.engine(ctx, h.cells)
	if err != nil {
		return Result{}, err
	}
	res.Output, res.Usage, err = eng.Eval(ctx, src, pythonCall(ctx, c))
	return res, err
}

// Bundle makes one text of a script, as Eval runs it, or says what is wrong with it.
func (h *Host) Bundle(ctx context.Context, who Who, src agent.Source) (Bundled, error) {
	if src.Kind != agent.Script {
		return Bundled{}, agent.Errorf(agent.Invalid, "only scripts are bundled")
	}
	b, err := h.bundle(ctx, Call{Tenant: who.App, Agent: who.Agent, Weight: who.Weight}, src)
	if err != nil {
		return Bundled{}, err
	}
	return Bundled{b.Code, b.Map}, nil
}

// bundle makes one text of code that runs once, when the app has its turn.
func (h *Host) bundle(ctx context.Context, c Call, src agent.Source) (*script.Bundle, error) {
	k := keyOf(src)
	if b := h.bundles.get(k); b != nil {
		return b, nil
	}
	leave, err := h.bundling.Enter(ctx, c.who())
	if err != nil {
		return nil, err
	}
	defer leave()
	b, err := h.scripts.Bundle(ctx, src)
	if err == nil {
		h.bundles.put(k, b)
	}
	return b, err
}

// with finds the guest of a call and a place for its cell.
func (h *Host) with(ctx context.Context, c Call, fn func(guest) error) error {
	e, err := h.find(ctx, c)
	if err != nil {
		return err
	}
	defer h.images.release(e)
	leave, err := h.enter(ctx, c)
	if err != nil {
		return err
	}
	defer leave()
	return fn(e.guest)
}

// maxPreparing is how much code may wait to be prepared.
const maxPreparing = 256

// maxDepth is how deep calls may wait for each other.
const maxDepth = 16

func (h *Host) enter(ctx context.Context, c Call) (leave func(), err error) {
	if c.Depth > maxDepth {
		return nil, agent.Exceeded(agent.LimitConcurrency, "more than %d calls wait for each other", maxDepth)
	}
	return h.gates[c.Depth].Enter(ctx, c.who())
}

func (h *Host) find(ctx context.Context, c Call) (*entry, error) {
	d, of := c.Plugin, caller{c.Tenant, c.Agent}
	if e := h.images.byDigest(d, of); e != nil {
		return e, nil
	}
	if h.opts.Load == nil {
		return nil, agent.Errorf(agent.NotFound, "no code with digest %s", d)
	}
	src, err := h.opts.Load(ctx, d)
	if err != nil {
		return nil, err
	}
	e, err := h.prepare(ctx, c.who(), src, func(Progress) {})
	if err == nil {
		h.images.name(d, e, of)
	}
	return e, err
}

// Live returns how many cells are running and how many calls wait for one.
func (h *Host) Live() (cells, waiting int) {
	for _, g := range h.gates {
		c, w := g.Count()
		cells, waiting = cells+c, waiting+w
	}
	return cells, waiting
}

// guest is loaded code of any family. It is safe for concurrent use.
type guest interface {
	Exports() []string
	HasFetch() bool
	Call(ctx context.Context, c Call) (agent.Payload, agent.Usage, error)
	Fetch(ctx context.Context, c Call, req Request) (Response, agent.Usage, error)
	Size() int64
	Cost() agent.Usage // of its loading
	Close(ctx context.Context) error
}

// logTo returns a sink for console output that passes it on as host calls. A refusal is the host's business.
func logTo(ctx context.Context, c Call) func(agent.LogLevel, string) {
	calls := c.Calls
	if c.Lines != nil {
		calls = c.Lines
	}
	if calls == nil {
		return nil
	}
	return func(level agent.LogLevel, line string) {
		in, err := json.Marshal(abi.Log{Level: level.String(), Message: line})
		if err == nil {
			_, _ = calls(ctx, abi.CallLog, in)
		}
	}
}

type wasmGuest struct{ agent *extism.Agent }

func (g wasmGuest) Exports() []string               { return g.agent.Exports() }
func (g wasmGuest) HasFetch() bool                  { return false }
func (g wasmGuest) Size() int64                     { return g.agent.Size() }
func (g wasmGuest) Cost() agent.Usage               { return g.agent.Cost() }
func (g wasmGuest) Close(ctx context.Context) error { return g.agent.Close(ctx) }

func (g wasmGuest) Call(ctx context.Context, c Call) (agent.Payload, agent.Usage, error) {
	return g.agent.Call(ctx, extism.Call{
		Function: c.Function, Input: c.Input, Config: c.Config, Vars: c.Vars, Env: cell.Env{
			Tenant: c.Tenant, Agent: c.Agent, Weight: c.Weight, Limits: c.Limits, Calls: c.Calls, Log: logTo(ctx, c), Now: c.Now, Random: c.Random,
		},
	})
}

func (g wasmGuest) Fetch(context.Context, Call, Request) (Response, agent.Usage, error) {
	return Response{}, agent.Usage{}, &agent.Error{
		Kind: agent.NotFound, Msg: "the agent answers no HTTP requests: it is a WebAssembly module",
		Hint: "call one of its functions; HTTP handlers are for agents in JavaScript or TypeScript",
	}
}

type scriptGuest struct{ agent *script.Agent }

func (g scriptGuest) Exports() []string           { return g.agent.Exports() }
func (g scriptGuest) HasFetch() bool              { return g.agent.HasFetch() }
func (g scriptGuest) Size() int64                 { return g.agent.Size() }
func (g scriptGuest) Cost() agent.Usage           { return g.agent.Cost() }
func (g scriptGuest) Close(context.Context) error { return g.agent.Close() }

func (g scriptGuest) Call(ctx context.Context, c Call) (agent.Payload, agent.Usage, error) {
	return g.agent.Call(ctx, scriptCall(ctx, c))
}

func (g scriptGuest) Fetch(ctx context.Context, c Call, req Request) (Response, agent.Usage, error) {
	res, usage, err := g.agent.Fetch(ctx, scriptCall(ctx, c), script.Request(req))
	return Response{Status: res.Status, Header: res.Header, Body: res.Body}, usage, err
}

func scriptCall(ctx context.Context, c Call) script.Call {
	return script.Call{
		Tenant: c.Tenant, Agent: c.Agent, Weight: c.Weight, Function: c.Function, Input: c.Input, Config: c.Config, Limits: c.Limits,
		Calls: script.Calls(c.Calls), Log: logTo(ctx, c), Now: c.Now, Random: c.Random, Waiting: c.Waiting,
	}
}
