package cell

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/prep"
)

// How much fuel a cell gets at a time. A unit is an instruction, so it is back in a fraction of a slice, which bounds how long it can keep
// a thread, and with it the garbage collector, from stopping. But an instruction that touches a page for the first time takes
// a microsecond and more, a thousand times as long as others: a cell whose memory has grown by many pages gets little at a time, and
// what it begins with, when it may grow, is not much. What work costs in fuel depends a little on the grants, so these depend on
// nothing but what the guest does.
const (
	firstFuel = 50_000
	grownFuel = 10_000
	fuelGrant = 200_000
)

// counters measure one life of a cell.
type counters struct {
	started time.Time
	granted int64 // fuel
	active  time.Duration
	entered time.Time // when guest code last began to run; zero while it does not
	yielded time.Time
	owed    time.Duration // that was run since the turns were last told
	hostN   int64
	issued  uint64
	in, out int64
	log     int64
}

func (m *counters) enter() {
	m.entered = time.Now()
	m.yielded = m.entered
}

func (m *counters) leave() {
	now := time.Now()
	m.active += now.Sub(m.entered)
	m.owed += now.Sub(m.yielded)
	m.entered = time.Time{}
}

// tick counts the time that the guest has run up to now.
func (m *counters) tick() {
	now := time.Now()
	m.active += now.Sub(m.entered)
	m.owed += now.Sub(m.yielded)
	m.entered, m.yielded = now, now
}

// spent is what the life has cost the machine up to now, about.
func (m *counters) spent() time.Duration { return m.active + time.Duration(m.hostN)*hostCall }

// meter is the function that prepared code calls when its fuel is used up.
var meter = Func{
	Module: prep.MeterModule, Name: prep.RefillName,
	Params: []prep.ValueType{I64}, Results: []prep.ValueType{I64},
	Call: func(_ context.Context, c *Cell, stack []uint64) {
		stack[0] += uint64(c.refill(&stack[0]))
	},
}

// refill returns more fuel, unless the guest may not go on. at lies on its stack.
func (c *Cell) refill(at *uint64) int64 {
	if s := c.stopped.Load(); s != nil {
		panic(s)
	}
	if n := len(c.running); n > 0 && c.image.code.engine.stack.used(c.running[n-1], at) > c.env.Limits.Stack {
		c.Fail(c.stackError())
	}
	c.meter.tick()
	if c.meter.active > c.env.Limits.CPU {
		c.Fail(agent.Exceeded(agent.LimitCPU, "the code used more CPU time than its limit of %s", c.env.Limits.CPU))
	}
	c.takeTurn(c.ctx)
	if s := c.stopped.Load(); s != nil {
		panic(s)
	}
	more := int64(fuelGrant)
	if c.memory != nil && c.memory.grown() {
		more = grownFuel
	}
	c.meter.granted += more
	return more
}

// takeTurn lets others run when the cell has run for a slice.
func (c *Cell) takeTurn(ctx context.Context) {
	ran := c.meter.owed
	if ran < slice {
		return
	}
	c.meter.owed = 0
	c.image.code.engine.turns.next(ctx, c, ran)
	c.meter.entered = time.Now()
	c.meter.yielded = c.meter.entered
}

// grant gives a new cell its first fuel.
func (c *Cell) grant() {
	c.fuel.Set(firstFuel)
	c.meter.granted = firstFuel
}

// Wait is for host functions that block: the time until the returned function is called is not the guest's. When the
// cell's context has ended by then, that function ends the cell.
func (c *Cell) Wait() (done func()) {
	if c.meter.entered.IsZero() {
		return func() {}
	}
	c.meter.leave()
	c.image.code.engine.turns.leave(c)
	return func() {
		c.image.code.engine.turns.enter(c.ctx, c)
		c.meter.enter()
		c.takeTurn(c.ctx)
		if c.ctx.Err() != nil {
			c.Fail(c.ended())
		}
	}
}

// Spend charges fuel for work that the host does for the guest, at about a nanosecond each.
func (c *Cell) Spend(fuel int64) { c.fuel.Set(uint64(int64(c.fuel.Get()) - fuel)) }

// CountCall counts one call to the host and ends the cell past its limit.
func (c *Cell) CountCall() {
	c.meter.hostN++
	c.meter.owed += hostCall
	if c.meter.hostN > c.env.Limits.HostCalls {
		c.Fail(agent.Exceeded(agent.LimitHostCalls, "the code made more than %d calls to its host", c.env.Limits.HostCalls))
	}
}

// Ask passes a request of the guest to the host and waits for the answer.
func (c *Cell) Ask(name string, in []byte) ([]byte, error) { return c.ask(c.ctx, name, in) }

// Number takes so many numbers for requests of the guest and returns the first. They count from 1, in the order in which the guest makes
// its requests.
func (c *Cell) Number(n int) uint64 {
	first := c.meter.issued + 1
	c.meter.issued += uint64(n)
	return first
}

// AskNext is AskNumbered with the next number.
func (c *Cell) AskNext(name string, in []byte) ([]byte, error) {
	return c.AskNumbered(c.Number(1), name, in)
}

// AskNumbered is Ask for a request that has a number.
func (c *Cell) AskNumbered(n uint64, name string, in []byte) ([]byte, error) {
	return c.ask(WithNumber(c.ctx, n), name, in)
}

func (c *Cell) ask(ctx context.Context, name string, in []byte) ([]byte, error) {
	c.CountCall()
	done := c.Wait()
	out, err := c.env.Calls(ctx, name, in)
	done()
	return out, err
}

// Log passes a line of console output to the host and ends the cell past its limit.
func (c *Cell) Log(level agent.LogLevel, line string) {
	c.meter.log += int64(len(line)) + 1
	if c.meter.log > c.env.Limits.Log {
		c.Fail(agent.Exceeded(agent.LimitLog, "the code wrote more than %d bytes of console output", c.env.Limits.Log))
	}
	c.env.Log(level, line)
}

// In counts the bytes of an input and refuses more than the limit.
func (c *Cell) In(n int) error {
	c.meter.in += int64(n)
	if c.meter.in > c.env.Limits.Input {
		return agent.Exceeded(agent.LimitInput, "the input has %d bytes, the limit is %d", c.meter.in, c.env.Limits.Input)
	}
	return nil
}

// Out counts the bytes of an output and refuses more than the limit.
func (c *Cell) Out(n int) error {
	c.meter.out += int64(n)
	if c.meter.out > c.env.Limits.Output {
		return agent.Exceeded(agent.LimitOutput, "the output has %d bytes, the limit is %d", c.meter.out, c.env.Limits.Output)
	}
	return nil
}

// Usage returns what the cell's life has cost up to now.
func (c *Cell) Usage() agent.Usage {
	return agent.Usage{
		CPU: c.meter.active, Wall: time.Since(c.meter.started), Fuel: c.meter.granted - int64(c.fuel.Get()),
		Memory: int64(len(c.Memory())) + c.held, HostCalls: c.meter.hostN, In: c.meter.in, Out: c.meter.out, Log: c.meter.log,
	}
}
