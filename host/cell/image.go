package cell

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/prep"
)

// Init brings a fresh instance to where its clones should begin: it runs initialisers, loads scripts, warms up.
type Init func(ctx context.Context, c *Cell) error

// Image is code with initialised memory and globals. It is safe for concurrent use.
type Image struct {
	code    *Code
	init    Init // nil, unless the code is not cloneable: then each cell runs it
	back    backing
	size    uint64
	globals []uint64
	cost    agent.Usage

	digestOnce sync.Once
	digestSum  [sha256.Size]byte // see digest

	mu     sync.Mutex
	idle   []*Cell
	closed bool
}

// NewImage instantiates code, runs its start function and init in a cell with env, and keeps what memory and globals are
// then. Code that keeps state elsewhere (in tables) has an image too, but each of its cells is made by running init anew.
func (e *Engine) NewImage(ctx context.Context, code *Code, env Env, init Init) (*Image, error) {
	first := &Image{code: code, init: init, size: uint64(code.module.MinPages) * pageSize}
	if !code.module.Cloneable {
		c, err := first.Cell(ctx, env)
		if err != nil {
			return nil, err
		}
		first.cost = c.Usage()
		c.discard()
		return first, nil
	}
	return first.capture(ctx, env, nil)
}

// Extend makes an image from a cell of this one, after init has run in it.
func (i *Image) Extend(ctx context.Context, env Env, init Init) (*Image, error) {
	if !i.code.module.Cloneable {
		both := func(ctx context.Context, c *Cell) error {
			if i.init != nil {
				if err := i.init(ctx, c); err != nil {
					return err
				}
			}
			return init(ctx, c)
		}
		return i.code.engine.NewImage(ctx, i.code, env, both)
	}
	return i.capture(ctx, env, init)
}

func (i *Image) capture(ctx context.Context, env Env, init Init) (*Image, error) {
	env.Imaging = true
	c, err := i.Cell(ctx, env)
	if err != nil {
		return nil, err
	}
	defer c.discard()
	if init != nil {
		if err := init(c.ctx, c); err != nil {
			return nil, c.explain(err)
		}
	}
	img := &Image{code: i.code, size: uint64(len(c.Memory()))}
	if img.back, err = i.code.engine.memories.backing(c.Memory(), c.memory.touched()); err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "no memory for an image")
	}
	for _, g := range c.globals {
		img.globals = append(img.globals, g.Get())
	}
	img.cost = c.Usage()
	return img, nil
}

// Cost returns what the cell has cost from which the image was made.
func (i *Image) Cost() agent.Usage { return i.cost }

// Size returns the bytes of memory that a cell begins with.
func (i *Image) Size() int64 { return int64(i.size) }

// Code returns the code that the image belongs to.
func (i *Image) Code() *Code { return i.code }

// Cell returns a cell that begins as the image: a used one made new, or a new one. Its life is bounded by ctx and by the
// wall time of env's limits. Close it.
func (i *Image) Cell(ctx context.Context, env Env) (*Cell, error) {
	env.fill()
	if int64(i.size) > env.Limits.Memory {
		return nil, agent.Exceeded(agent.LimitMemory, "the code needs %d bytes of memory to start, the limit is %d", i.size, env.Limits.Memory)
	}
	if n := int64(i.code.module.Table); n > env.Limits.Table {
		return nil, agent.Exceeded(agent.LimitTable, "the code needs a table of %d entries to start, the limit is %d", n, env.Limits.Table)
	}
	c := i.take(env.Tenant)
	if c == nil {
		var err error
		if c, err = i.instantiate(ctx); err != nil {
			return nil, err
		}
	}
	c.begin(ctx, env)
	if i.back != nil {
		return c, nil
	}
	if err := i.build(c); err != nil {
		err = c.explain(err)
		c.discard()
		return nil, err
	}
	return c, nil
}

// build brings an instance without an image behind it to its beginning: data, start function, init.
func (i *Image) build(c *Cell) error {
	for _, s := range i.code.module.Data {
		copy(c.Memory()[s.Offset:], s.Data)
	}
	if i.code.module.HasStart {
		if _, err := c.Call(prep.StartName); err != nil {
			return err
		}
	}
	if i.init == nil {
		return nil
	}
	return i.init(c.ctx, c)
}

// take returns an idle cell that last served tenant. One that served another is thrown away.
func (i *Image) take(tenant agent.App) *Cell {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.idle) > 0 {
		c := i.idle[len(i.idle)-1]
		i.idle = i.idle[:len(i.idle)-1]
		if c.env.Tenant == tenant {
			return c
		}
		c.discard()
	}
	return nil
}

// put keeps a cell that was made new again, or throws it away when there are enough.
func (i *Image) put(c *Cell) {
	i.mu.Lock()
	keep := !i.closed && !i.code.engine.budget.tight() && len(i.idle) < i.code.engine.opts.Pool
	if keep {
		i.idle = append(i.idle, c)
	}
	i.mu.Unlock()
	if !keep {
		c.discard()
	}
}

// Idle returns how many used cells are kept.
func (i *Image) Idle() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.idle)
}

// Close frees the image. Cells that are still in use keep their memory until they are closed.
func (i *Image) Close() error {
	i.mu.Lock()
	idle := i.idle
	i.idle, i.closed = nil, true
	i.mu.Unlock()
	for _, c := range idle {
		c.discard()
	}
	if i.back == nil {
		return nil
	}
	if err := i.back.close(); err != nil {
		return fmt.Errorf("close an image: %w", err)
	}
	return nil
}
