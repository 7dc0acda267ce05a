package cell

import (
	"context"
	"runtime"
	"testing"

	"github.com/skep-dev/skep/internal/wasmtest"
)

// grower is a cell whose guest grows and counts.
func grower(t *testing.T) *Cell {
	t.Helper()
	e, err := New(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	i32 := []byte{wasmtest.I32}
	m := wasmtest.Module{
		Types: []wasmtest.Type{{Params: i32, Results: i32}},
		Funcs: []wasmtest.Func{
			{Export: "grow", Body: wasmtest.Code(0x20, 0, 0x40, 0)},
			// loop { local0--; br_if local0 }; 0
			{Export: "count", Body: wasmtest.Code(0x03, 0x40, 0x20, 0, wasmtest.I32Const(1), 0x6b, 0x22, 0, 0x0d, 0, 0x0b, wasmtest.I32Const(0))},
		},
		Memory: wasmtest.Size(1, -1),
	}
	code, err := e.Compile(t.Context(), m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	img, err := e.NewImage(t.Context(), code, Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = img.Close() })
	c, err := img.Cell(t.Context(), Env{Tenant: "app"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func run(t *testing.T, c *Cell, name string, arg uint64) {
	t.Helper()
	if got, err := c.Call(name, arg); err != nil || int32(got) < 0 {
		t.Fatalf("%s: %d, %v", name, int32(got), err)
	}
}

// A cell that has many pages which it may never have touched is given little fuel at a time, and the others as much as is good.
func TestFuelOfAGrownCell(t *testing.T) {
	c := grower(t)
	defer c.Close()
	run(t, c, "count", 1_000_000)
	small := c.meter.granted
	if rest := (small - firstFuel) % fuelGrant; rest != 0 {
		t.Errorf("a small cell was granted %d, and some other amount of %d", small, rest)
	}
	left := int64(c.fuel.Get())
	run(t, c, "grow", 2*muchGrown/pageSize)
	run(t, c, "count", 1_000_000)
	grants := (c.meter.granted - small) / grownFuel
	if used := left + c.meter.granted - small - int64(c.fuel.Get()); used < 1_000_000 || (c.meter.granted-small)%grownFuel != 0 || grants < (used-left)/grownFuel {
		t.Errorf("a grown cell used %d and was granted %d", used, c.meter.granted-small)
	}
}

// Freeing much takes turns with what else runs, and is paid for by who has grown.
func TestFreeingTakesTurns(t *testing.T) {
	c := grower(t)
	turns := c.image.code.engine.turns
	run(t, c, "grow", 8*muchGrown/pageSize)
	share := c.share
	c.meter.active = start // it does not run for free any more
	turns.mu.Lock()
	before, places := share.served, turns.places // others have them all
	turns.running += places
	turns.busy.Add(int64(places))
	turns.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		c.Close()
		close(closed)
	}()
	for waiting := 0; waiting == 0; runtime.Gosched() {
		turns.mu.Lock()
		waiting = turns.waiting
		turns.mu.Unlock()
		select {
		case <-closed:
			t.Fatal("it was freed although others had all places")
		default:
		}
	}
	turns.mu.Lock()
	turns.running -= places
	turns.busy.Add(-int64(places))
	turns.admit(c.meter.started)
	turns.mu.Unlock()
	<-closed
	if share.served <= before {
		t.Error("nobody paid for what was freed")
	}
	if turns.running != 0 || turns.waiting != 0 || turns.busy.Load() != 0 {
		t.Errorf("%d run and %d wait after all", turns.running, turns.waiting)
	}
}
