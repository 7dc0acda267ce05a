package cell_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/internal/wasmtest"
)

var (
	code  = wasmtest.Code
	i32c  = wasmtest.I32Const
	i64c  = wasmtest.I64Const
	pages = wasmtest.Size
)

const (
	i32 = wasmtest.I32
	i64 = wasmtest.I64
)

// kit is a module with a function for each thing that a guest can do to its own state.
func kit() wasmtest.Module {
	const (
		nothing = iota
		toI32
		i32ToI32
		twoI32
	)
	return wasmtest.Module{
		Types: []wasmtest.Type{
			{}, {Results: []byte{i32}}, {Params: []byte{i32}, Results: []byte{i32}}, {Params: []byte{i32, i32}},
		},
		Imports: []wasmtest.Import{{Module: "test", Name: "ask", Type: i32ToI32}},
		Funcs: []wasmtest.Func{
			{Type: twoI32, Export: "store", Body: code(0x20, 0, 0x20, 1, 0x3a, 0, 0)},
			{Type: i32ToI32, Export: "load", Body: code(0x20, 0, 0x2d, 0, 0)},
			{Type: toI32, Export: "count", Body: code(0x23, 0, i32c(1), 0x6a, 0x24, 0, 0x23, 0)},
			{Type: i32ToI32, Export: "grow", Body: code(0x20, 0, 0x40, 0)},
			{Type: nothing, Export: "trap", Body: code(0x00)},
			{Type: nothing, Export: "spin", Body: code(0x03, 0x40, 0x0c, 0, 0x0b)},
			{Type: nothing, Export: "recurse", Body: code(0x10, 7)},
			{Type: i32ToI32, Export: "ask", Body: code(0x20, 0, 0x10, 0)},
			{Type: nothing, Export: "tree", Body: code(0x10, 10, 0x10, 10)},
			{Type: nothing, Body: code(0x10, 11, 0x10, 11)}, {Type: nothing, Body: code(0x10, 12, 0x10, 12)},
			{Type: nothing, Body: code(0x10, 13, 0x10, 13)}, {Type: nothing, Body: code(0x10, 9, 0x10, 9)},
			{Type: i32ToI32, Export: "loopFor", Locals: []byte{i32}, Body: code(0x03, 0x40, 0x20, 1, i32c(1), 0x6a, 0x22, 1, 0x20, 0, 0x49, 0x0d, 0, 0x0b, 0x20, 1)},
		},
		Globals: []wasmtest.Global{{Type: i32, Mutable: true, Init: i32c(0)}},
		Memory:  pages(2, 100),
		Data:    []wasmtest.Data{{Offset: 70_000, Bytes: []byte("data")}},
	}
}

// asks is what the guest's ask calls: it answers with what the test put into the cell's Guest.
var asks = cell.Func{
	Module: "test", Name: "ask", Params: []byte{cell.I32}, Results: []byte{cell.I32},
	Call: func(ctx context.Context, c *cell.Cell, stack []uint64) {
		if f, ok := c.Guest.(func(context.Context, *cell.Cell, uint32) uint32); ok {
			stack[0] = uint64(f(ctx, c, uint32(stack[0])))
		}
	},
}

// both runs a test with copy-on-write cells and with copied ones.
func both(t *testing.T, fn func(t *testing.T, e *cell.Engine)) {
	for name, copying := range map[string]bool{"mapped": false, "copied": true} {
		t.Run(name, func(t *testing.T) {
			e, err := cell.New(t.Context(), []cell.Func{asks}, &cell.Options{Copy: copying})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close(context.Background()) })
			fn(t, e)
		})
	}
}

func image(t *testing.T, e *cell.Engine, m wasmtest.Module, init cell.Init) *cell.Image {
	t.Helper()
	c, err := e.Compile(t.Context(), m.Bytes(), "test")
	if err != nil {
		t.Fatal(err)
	}
	img, err := e.NewImage(t.Context(), c, cell.Env{}, init)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = img.Close() })
	return img
}

func open(t *testing.T, img *cell.Image, env cell.Env) *cell.Cell {
	t.Helper()
	c, err := img.Cell(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func call(t *testing.T, c *cell.Cell, name string, args ...uint64) uint64 {
	t.Helper()
	r, err := c.Call(name, args...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

func TestEveryCellBeginsAsTheImage(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), func(_ context.Context, c *cell.Cell) error {
			if _, err := c.Call("store", 5, 50); err != nil {
				return err
			}
			_, err := c.Call("count")
			return err
		})
		first := open(t, img, cell.Env{})
		want := string(first.Memory())
		if want[5] != 50 || want[70_000:70_004] != "data" {
			t.Fatal("the image does not hold what init and the data segment wrote")
		}
		first.Close()
		rnd := rand.New(rand.NewPCG(1, 2))
		for n := range 300 {
			c := open(t, img, cell.Env{})
			if string(c.Memory()) != want {
				t.Fatalf("cell %d begins with other memory", n)
			}
			if got := call(t, c, "count"); got != 2 {
				t.Fatalf("cell %d begins with the global at %d, want 1", n, got-1)
			}
			for range rnd.IntN(40) {
				call(t, c, "store", uint64(rnd.IntN(len(want))), uint64(rnd.IntN(256)))
			}
			if rnd.IntN(4) == 0 { // dirty every page
				for p := 0; p < len(want); p += 4096 {
					call(t, c, "store", uint64(p+rnd.IntN(4096)), 7)
				}
			}
			c.Close()
		}
		if img.Idle() != 1 {
			t.Errorf("%d idle cells, want the one that was used again and again", img.Idle())
		}
	})
}

func TestUsedCellsAreKeptOnlyWhenTheyCanBe(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		for name, tc := range map[string]struct {
			use  func(c *cell.Cell)
			keep int
		}{
			"plain":    {func(c *cell.Cell) { call(t, c, "count") }, 1},
			"grew":     {func(c *cell.Cell) { call(t, c, "grow", 1) }, 0},
			"trapped":  {func(c *cell.Cell) { _, _ = c.Call("trap") }, 0},
			"mistaken": {func(c *cell.Cell) { _, _ = c.Call("no such") }, 1},
		} {
			t.Run(name, func(t *testing.T) {
				for img.Idle() > 0 { // begin with none
					open(t, img, cell.Env{Tenant: agent.App(name)}).Close()
					c := open(t, img, cell.Env{Tenant: agent.App(name)})
					_, _ = c.Call("trap")
					c.Close()
				}
				c := open(t, img, cell.Env{})
				tc.use(c)
				c.Close()
				if img.Idle() != tc.keep {
					t.Errorf("%d idle, want %d", img.Idle(), tc.keep)
				}
			})
		}
		t.Run("other tenant", func(t *testing.T) {
			open(t, img, cell.Env{Tenant: "a"}).Close()
			b := open(t, img, cell.Env{Tenant: "b"})
			if img.Idle() != 0 {
				t.Error("the cell of another tenant was kept")
			}
			b.Close()
		})
		t.Run("context ended", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := img.Cell(ctx, cell.Env{Tenant: "c"})
			if err != nil {
				t.Fatal(err)
			}
			idle := img.Idle()
			cancel()
			c.Close()
			if img.Idle() > idle {
				t.Error("a cell that was told to stop was kept")
			}
		})
	})
}

func TestLimits(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		soon := 30 * time.Millisecond
		for name, tc := range map[string]struct {
			limits agent.Limits
			fn     string
			limit  agent.Limit
		}{
			"CPU of a loop":      {agent.Limits{CPU: soon}, "spin", agent.LimitCPU},
			"recursion by turns": {agent.Limits{CPU: soon, Stack: 1 << 20}, "tree", agent.LimitStack},
			"wall time":          {agent.Limits{Wall: soon}, "spin", agent.LimitWall},
			"stack":              {agent.Limits{Stack: 1 << 20}, "recurse", agent.LimitStack},
			"default stack":      {agent.Limits{}, "recurse", agent.LimitStack},
		} {
			t.Run(name, func(t *testing.T) {
				c := open(t, img, cell.Env{Limits: tc.limits})
				defer c.Close()
				_, err := c.Call(tc.fn)
				if e := agent.AsError(err); e == nil || e.Kind != agent.Exhausted || e.Limit != tc.limit {
					t.Errorf("got %v, want the limit %v", err, tc.limit)
				}
				if _, err := c.Call("count"); err == nil {
					t.Error("a stopped cell still runs")
				}
			})
		}
		t.Run("memory at the limit", func(t *testing.T) {
			c := open(t, img, cell.Env{Limits: agent.Limits{Memory: 4 << 16}})
			defer c.Close()
			if got := call(t, c, "grow", 2); got != 2 {
				t.Errorf("growth to the limit: %d, want the old size 2", int32(got))
			}
			if got := call(t, c, "grow", 1); int32(got) != -1 {
				t.Errorf("growth past the limit: %d, want -1", int32(got))
			}
			_, err := c.Call("trap")
			if e := agent.AsError(err); e == nil || e.Limit != agent.LimitMemory {
				t.Errorf("a guest that traps after it was refused memory: %v", err)
			}
		})
		t.Run("memory to start with", func(t *testing.T) {
			_, err := img.Cell(t.Context(), cell.Env{Limits: agent.Limits{Memory: 2<<16 - 1}})
			if e := agent.AsError(err); e == nil || e.Limit != agent.LimitMemory {
				t.Errorf("got %v", err)
			}
			open(t, img, cell.Env{Limits: agent.Limits{Memory: 2 << 16}}).Close()
		})
		t.Run("table", func(t *testing.T) {
			m := kit()
			m.Table = pages(2, -1)
			m.Types = append(m.Types, wasmtest.Type{Params: []byte{i32}, Results: []byte{i32}})
			m.Funcs = append(m.Funcs, wasmtest.Func{
				Type: 2, Export: "growTable", Body: code(0xd0, wasmtest.FuncRef, 0x20, 0, 0xfc, 15, 0),
			})
			img := image(t, e, m, nil)
			c := open(t, img, cell.Env{Limits: agent.Limits{Table: 10}})
			defer c.Close()
			if got := call(t, c, "growTable", 8); got != 2 {
				t.Errorf("growth to the limit: %d, want the old size 2", int32(got))
			}
			if got := call(t, c, "growTable", 1); int32(got) != -1 {
				t.Errorf("growth past the limit: %d, want -1", int32(got))
			}
			if got := call(t, c, "growTable", 1<<32-1); int32(got) != -1 {
				t.Errorf("growth by all there is: %d, want -1", int32(got))
			}
			_, err := c.Call("trap")
			if e := agent.AsError(err); e == nil || e.Limit != agent.LimitTable {
				t.Errorf("a guest that traps after it was refused a table: %v", err)
			}
			_, err = img.Cell(t.Context(), cell.Env{Limits: agent.Limits{Table: 1}})
			if e := agent.AsError(err); e == nil || e.Limit != agent.LimitTable {
				t.Errorf("a table larger than the limit to start with: %v", err)
			}
		})
		t.Run("host calls", func(t *testing.T) {
			c := open(t, img, cell.Env{Limits: agent.Limits{HostCalls: 2}})
			defer c.Close()
			c.Guest = func(_ context.Context, c *cell.Cell, _ uint32) uint32 { c.CountCall(); return 1 }
			call(t, c, "ask", 0)
			call(t, c, "ask", 0)
			_, err := c.Call("ask", 0)
			if e := agent.AsError(err); e == nil || e.Limit != agent.LimitHostCalls {
				t.Errorf("got %v", err)
			}
		})
		t.Run("log", func(t *testing.T) {
			var lines []string
			c := open(t, img, cell.Env{
				Limits: agent.Limits{Log: 10}, Log: func(_ agent.LogLevel, l string) { lines = append(lines, l) },
			})
			defer c.Close()
			c.Guest = func(_ context.Context, c *cell.Cell, n uint32) uint32 {
				c.Log(agent.LevelInfo, strings.Repeat("x", int(n)))
				return 0
			}
			call(t, c, "ask", 9) // and its line end
			_, err := c.Call("ask", 0)
			if e := agent.AsError(err); e == nil || e.Limit != agent.LimitLog || len(lines) != 1 {
				t.Errorf("got %v after %d lines", err, len(lines))
			}
		})
	})
}

func TestCancelStopsACellAtOnce(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := img.Cell(ctx, cell.Env{Limits: agent.Limits{CPU: time.Minute, Wall: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := c.Call("spin"); agent.KindOf(err) != agent.Cancelled {
			t.Errorf("got %v", err)
		}
	})
}

// While two cells spin, others come and go on the same two processors, and the garbage collector runs.
func TestNeighboursOfABusyCell(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		var hogs sync.WaitGroup
		for range 3 {
			c, err := img.Cell(ctx, cell.Env{Tenant: "hog", Limits: agent.Limits{CPU: time.Minute, Wall: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			hogs.Go(func() {
				defer c.Close()
				if _, err := c.Call("spin"); agent.KindOf(err) != agent.Cancelled {
					t.Errorf("a hog ended by itself: %v", err)
				}
			})
		}
		for range 50 {
			c := open(t, img, cell.Env{Tenant: "neighbour"})
			if got := call(t, c, "loopFor", 1000); got != 1000 {
				t.Errorf("got %d", got)
			}
			c.Close()
		}
		cancel()
		hogs.Wait()
	})
}

func TestErrors(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		c := open(t, img, cell.Env{})
		_, err := c.Call("trap")
		if e := agent.AsError(err); e.Kind != agent.Failed || !strings.Contains(e.Msg, "unreachable") {
			t.Errorf("trap: %v", err)
		}
		c.Close()

		c = open(t, img, cell.Env{})
		if _, err := c.Call("nothing"); !errors.Is(err, cell.ErrNoFunction) {
			t.Errorf("unknown function: %v", err)
		}
		mine := agent.Errorf(agent.Denied, "not for you")
		c.Guest = func(_ context.Context, c *cell.Cell, _ uint32) uint32 { c.Fail(mine); return 0 }
		if _, err := c.Call("ask", 1); !errors.Is(err, mine) {
			t.Errorf("a host function's error: %v", err)
		}
		c.Close()

		c = open(t, img, cell.Env{})
		c.Guest = func(_ context.Context, c *cell.Cell, n uint32) uint32 { return uint32(len(c.Read(n, 10))) }
		call(t, c, "ask", 2<<16-10)
		if _, err := c.Call("ask", 2<<16-9); agent.KindOf(err) != agent.Failed {
			t.Errorf("a pointer past the end: %v", err)
		}
		c.Close()

		c = open(t, img, cell.Env{})
		if _, err := c.Ask("anything", nil); agent.KindOf(err) != agent.Denied {
			t.Errorf("a call that nothing answers: %v", err)
		}
		c.Close()
	})
}

func TestHostFunctionsMayCallBack(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		c := open(t, image(t, e, kit(), nil), cell.Env{})
		defer c.Close()
		c.Guest = func(_ context.Context, c *cell.Cell, n uint32) uint32 {
			if n == 0 {
				return 100
			}
			r, err := c.Call("ask", uint64(n-1))
			if err != nil {
				t.Error(err)
			}
			return uint32(r) + 1
		}
		if got := call(t, c, "ask", 5); got != 105 {
			t.Errorf("got %d, want 105", got)
		}
	})
}

func TestTogether(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		c := open(t, img, cell.Env{})
		defer c.Close()
		c.Guest = func(_ context.Context, c *cell.Cell, n uint32) uint32 {
			c.Wait()()
			return n
		}
		c.Together(func() {
			call(t, c, "loopFor", 100_000)
			c.Together(func() { call(t, c, "count") })
			if got := call(t, c, "ask", 5); got != 5 {
				t.Errorf("got %d, want 5", got)
			}
		})
		first := c.Usage().CPU
		if got := call(t, c, "count"); got != 2 || first == 0 || c.Usage().CPU < first {
			t.Errorf("it counted %d, want 2; CPU time was %s, then %s", got, first, c.Usage().CPU)
		}

		limited := open(t, img, cell.Env{Limits: agent.Limits{CPU: time.Millisecond}})
		defer limited.Close()
		limited.Together(func() {
			_, err := limited.Call("spin")
			if _, again := limited.Call("count"); agent.AsError(err).Limit != agent.LimitCPU || again == nil {
				t.Errorf("got %v and %v, want both stopped by the CPU time", err, again)
			}
		})
	})
}

func TestExtend(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		base := image(t, e, kit(), func(_ context.Context, c *cell.Cell) error {
			_, err := c.Call("store", 1, 11)
			return err
		})
		more, err := base.Extend(t.Context(), cell.Env{}, func(_ context.Context, c *cell.Cell) error {
			if _, err := c.Call("grow", 3); err != nil {
				return err
			}
			_, err := c.Call("store", 4<<16, 22)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = more.Close() }()
		for range 2 {
			c := open(t, more, cell.Env{})
			if a, b := call(t, c, "load", 1), call(t, c, "load", 4<<16); a != 11 || b != 22 || more.Size() != 5<<16 {
				t.Errorf("got %d %d and %d bytes", a, b, more.Size())
			}
			c.Close()
		}
		c := open(t, base, cell.Env{})
		defer c.Close()
		if len(c.Memory()) != 2<<16 {
			t.Error("extending changed the base")
		}
		if _, err := base.Extend(t.Context(), cell.Env{}, func(_ context.Context, c *cell.Cell) error {
			_, err := c.Call("trap")
			return err
		}); agent.KindOf(err) != agent.Failed {
			t.Errorf("an init that traps: %v", err)
		}
	})
}

// A module that changes its table cannot be cloned: each cell is initialised anew, and is still right.
func TestModulesThatChangeTheirTables(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		m := kit()
		m.Table = pages(2, 2)
		m.Funcs = append(m.Funcs, wasmtest.Func{
			Type: 1, Export: "once", Body: code(
				i32c(0), 0x25, 0, 0xd1, // is table[0] null?
				i32c(0), 0xd2, 1, 0x26, 0, // table[0] = store
			),
		})
		m.Elems = nil
		img := image(t, e, m, func(_ context.Context, c *cell.Cell) error {
			_, err := c.Call("store", 3, 33)
			return err
		})
		for range 3 {
			c := open(t, img, cell.Env{})
			if got := call(t, c, "once"); got != 1 {
				t.Error("the table kept what another cell wrote")
			}
			if got := call(t, c, "once"); got != 0 {
				t.Error("the table forgot what this cell wrote")
			}
			if got := call(t, c, "load", 3); got != 33 {
				t.Errorf("init was not run: %d", got)
			}
			c.Close()
		}
	})
}

func TestUsage(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		fuel := func(n uint64) int64 {
			c := open(t, img, cell.Env{})
			defer c.Close()
			call(t, c, "loopFor", n)
			u := c.Usage()
			if u.Memory != 2<<16 || u.CPU <= 0 || u.Wall < u.CPU {
				t.Errorf("%+v", u)
			}
			return u.Fuel
		}
		one, two := fuel(1_000_000), fuel(2_000_000)
		if one < 5_000_000 || two-one < one*9/10 || two-one > one*11/10 {
			t.Errorf("fuel for a million turns %d, for two %d", one, two)
		}
		if again := fuel(1_000_000); again != one {
			t.Errorf("the same work cost %d, then %d", one, again)
		}
	})
}

func TestCompileRefuses(t *testing.T) {
	e, err := cell.New(t.Context(), []cell.Func{asks}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close(context.Background()) }()
	if _, err := e.Compile(t.Context(), kit().Bytes()); err == nil || !strings.Contains(err.Error(), `"test"."ask"`) {
		t.Errorf("a module whose import is not for it: %v", err)
	}
	bad := wasmtest.Module{Types: []wasmtest.Type{{}}, Funcs: []wasmtest.Func{{Body: code(0x6a)}}}
	if _, err := e.Compile(t.Context(), bad.Bytes()); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a module that does not validate: %v", err)
	}
	if _, err := cell.New(t.Context(), []cell.Func{asks, asks}, nil); err == nil {
		t.Error("a host function was given twice")
	}
}
