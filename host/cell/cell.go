package cell

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/prep"
)

// Cell is one live instance. Its methods are for the goroutine that owns it, and for host functions running on that.
type Cell struct {
	image   *Image
	module  api.Module
	memory  memory
	fuel    api.MutableGlobal
	globals []api.MutableGlobal
	table   api.MutableGlobal         // the limit of its tables; nil when they cannot grow
	funcs   []map[string]api.Function // by depth of re-entry: an api.Function is not re-entrant
	running []api.Function            // the calls under way, outermost first
	args    []*[maxArgs]uint64        // by depth

	together bool // calls under way belong to one stretch of running, see Together

	env      Env
	call     callContext
	ctx      context.Context
	cancel   context.CancelFunc
	unwatch  func() bool
	stopped  atomic.Pointer[stopped]
	share    *share // of the processors, see turns
	placing  placing
	placedAt time.Time
	broken   bool // it trapped or was stopped: nothing in it can be trusted
	meter    counters
	held     int64 // bytes that the host keeps for the guest, see Hold

	// Guest is the state that the guest's family (Extism, script) keeps with the cell for one life.
	Guest any
}

// instantiate makes a cell that has memory like the image's, or empty memory when there is none.
func (i *Image) instantiate(ctx context.Context) (*Cell, error) {
	c := &Cell{image: i}
	back := i.back
	if back == nil {
		start := uint64(i.code.module.MinPages) * pageSize
		blank, err := i.code.engine.memories.backing(make([]byte, start), []span{})
		if err != nil {
			return nil, agent.Wrap(agent.Unavailable, err, "no memory for a cell")
		}
		defer func() { _ = blank.close() }()
		back = blank
	}
	var failed error
	alloc := experimental.MemoryAllocatorFunc(func(_, most uint64) experimental.LinearMemory {
		if c.memory, failed = back.newMemory(most); failed != nil {
			panic(failed)
		}
		return c.memory
	})
	m, err := i.code.engine.instantiate(experimental.WithMemoryAllocator(context.WithoutCancel(ctx), alloc), i.code)
	if failed != nil {
		return nil, agent.Wrap(agent.Unavailable, failed, "no memory for a cell")
	}
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "the module cannot be instantiated")
	}
	c.module = m
	c.fuel = m.ExportedGlobal(prep.FuelGlobal).(api.MutableGlobal)
	if i.code.module.Grows {
		c.table = m.ExportedGlobal(prep.TableGlobal).(api.MutableGlobal)
	}
	for _, g := range i.code.module.Globals {
		c.globals = append(c.globals, m.ExportedGlobal(g.Name).(api.MutableGlobal))
	}
	c.setGlobals()
	return c, nil
}

// instantiate turns the panic by which an allocator gives up into an error.
func (e *Engine) instantiate(ctx context.Context, code *Code) (m api.Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			if re, ok := r.(error); ok {
				err = re
				return
			}
			panic(r)
		}
	}()
	return e.runtime.InstantiateModule(ctx, code.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
}

func (c *Cell) setGlobals() {
	for n, v := range c.image.globals {
		c.globals[n].Set(v)
	}
}

// begin starts a life: the clock runs from here.
func (c *Cell) begin(ctx context.Context, env Env) {
	c.env = env
	c.ctx, c.cancel = context.WithTimeoutCause(ctx, env.Limits.Wall, errWall)
	c.call = callContext{Context: c.ctx, cell: c}
	c.meter = counters{started: time.Now()}
	c.image.code.engine.turns.begin(c.meter.started)
	c.image.code.engine.turns.join(c)
	c.unwatch = context.AfterFunc(c.ctx, func() { c.stop(c.ended()) })
	c.held = 0
	c.limitMemory()
	if c.table != nil {
		c.table.Set(uint64(env.Limits.Table))
	}
	c.grant()
}

// errWall is why a cell's context ends when its wall time is up, and not that of its caller.
var errWall = errors.New("wall time is up")

// ended says why the cell's context has ended.
func (c *Cell) ended() error {
	cause := context.Cause(c.ctx)
	if errors.Is(cause, errWall) {
		return agent.Exceeded(agent.LimitWall, "the call took longer than its limit of %s", c.env.Limits.Wall)
	}
	return agent.Wrap(agent.Cancelled, cause, "the call was cancelled")
}

// stop ends the cell's life with err, soon: the guest is interrupted at its next charge of fuel, host calls by their
// context. The first error counts. It may be called from any goroutine.
func (c *Cell) stop(err error) {
	c.stopped.CompareAndSwap(nil, &stopped{err})
	c.cancel()
}

// Close ends the cell's life and returns it to its image when it can be made new in place.
func (c *Cell) Close() {
	quiet := c.unwatch() // else the watcher may yet stop the cell
	c.cancel()
	c.giveBack()
	c.part()
	c.Guest = nil
	clean := quiet && !c.broken && c.stopped.Load() == nil && len(c.running) == 0
	if !clean || c.image.back == nil || !c.image.code.module.Resettable || c.deep() || c.memory != nil && !c.memory.reset() {
		c.discard()
		return
	}
	c.setGlobals()
	c.image.put(c)
}

// giveBack frees what a guest has grown by. The kernel takes milliseconds for a hundred megabytes, so it is done in pieces, in turns with all
// that runs, and is the guest's time as much as touching the pages was: else whoever fills memory again and again would have half of
// it for nothing, on processors that others wait for.
func (c *Cell) giveBack() {
	if c.memory == nil || c.share == nil || c.placing != outside || c.together || !c.memory.grown() {
		return
	}
	ctx := context.WithoutCancel(c.ctx) // which has ended, and whose cells wait for no turn
	c.enter(ctx)
	for c.memory.free() {
		c.meter.tick()
		c.takeTurn(ctx)
	}
	c.leave()
}

// part ends the cell's shares of the processors and of memory.
func (c *Cell) part() {
	if c.share != nil {
		c.image.code.engine.turns.part(c, c.meter.owed)
		c.image.code.engine.budget.give(c.held)
		c.held = 0
	}
}

// deep reports whether a guest's stack has grown so much that it is better given back.
func (c *Cell) deep() bool {
	const enough = 2 << 20
	total := int64(0)
	for _, fs := range c.funcs {
		for _, f := range fs {
			total += c.image.code.engine.stack.grown(f)
		}
	}
	return total > enough
}

func (c *Cell) discard() {
	if c.cancel != nil {
		c.unwatch()
		c.cancel()
		c.part()
	}
	_ = c.module.Close(context.Background())
}

// Err returns why the cell was stopped, or nil while it lives.
func (c *Cell) Err() error {
	if s := c.stopped.Load(); s != nil {
		return s.err
	}
	if c.ctx.Err() != nil {
		return c.ended()
	}
	return nil
}

// Env returns what the cell was given.
func (c *Cell) Env() *Env { return &c.env }

// Context ends when the cell is stopped or closed.
func (c *Cell) Context() context.Context { return c.ctx }

// Image returns the image that the cell came from.
func (c *Cell) Image() *Image { return c.image }

// Memory returns the linear memory. It is valid until the guest runs again, which may grow it.
func (c *Cell) Memory() []byte {
	if c.memory == nil {
		return nil
	}
	m := c.module.Memory()
	b, _ := m.Read(0, m.Size())
	return b
}

// Read returns n bytes at ptr, valid until the guest runs again. A range outside of memory ends the cell.
func (c *Cell) Read(ptr, n uint32) []byte {
	var b []byte
	ok := false
	if c.memory != nil {
		b, ok = c.module.Memory().Read(ptr, n)
	}
	if !ok {
		c.Fail(agent.Errorf(agent.Failed, "the code passed its host %d bytes at %d, outside of its memory", n, ptr))
	}
	return b
}

// Write copies b to ptr. A range outside of memory ends the cell.
func (c *Cell) Write(ptr uint32, b []byte) {
	copy(c.Read(ptr, uint32(len(b))), b)
}

// PutU32 and U32 access a little-endian number.
func (c *Cell) PutU32(ptr, v uint32) { binary.LittleEndian.PutUint32(c.Read(ptr, 4), v) }
func (c *Cell) U32(ptr uint32) uint32 {
	return binary.LittleEndian.Uint32(c.Read(ptr, 4))
}

// PutU64 writes a little-endian number.
func (c *Cell) PutU64(ptr uint32, v uint64) { binary.LittleEndian.PutUint64(c.Read(ptr, 8), v) }

// Hold counts n more bytes that the host keeps for the guest, or fewer when n is negative, as part of the guest's memory.
// It reports false, and counts nothing, when the limit does not allow them.
func (c *Cell) Hold(n int64) bool {
	if n > 0 && c.held+int64(len(c.Memory()))+n > c.env.Limits.Memory || !c.image.code.engine.budget.take(n) {
		return false
	}
	c.held += n
	c.limitMemory()
	return true
}

func (c *Cell) limitMemory() {
	if c.memory != nil {
		c.memory.limit(uint64(max(0, c.env.Limits.Memory-c.held)))
	}
}
