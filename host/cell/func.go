package cell

import (
	"context"

	"github.com/tetratelabs/wazero/api"

	"github.com/skep-dev/skep/host/prep"
)

// The value types of host functions.
const (
	I32 = prep.I32
	I64 = prep.I64
	F32 = prep.F32
	F64 = prep.F64
)

// Func is a function that the host offers to guests. Call finds the parameters in stack and leaves the results there. It
// runs on the cell's goroutine and may call back into the cell. To refuse, it ends the cell by Fail; it must not panic
// with anything else.
type Func struct {
	Module, Name    string
	Params, Results []prep.ValueType
	Call            func(ctx context.Context, c *Cell, stack []uint64)
}

func (f Func) bind() api.GoModuleFunction {
	call := f.Call
	var narrow []int // parameters of 32 bits: the engine leaves whatever it likes in the upper half
	for i, t := range f.Params {
		if t == I32 {
			narrow = append(narrow, i)
		}
	}
	return api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
		c := ctx.(*callContext).cell
		for _, i := range narrow {
			stack[i] = uint64(uint32(stack[i]))
		}
		call(ctx, c, stack)
		if s := c.stopped.Load(); s != nil {
			panic(s)
		}
	})
}

// callContext is the context of a call into a cell; host functions find their cell in it.
type callContext struct {
	context.Context
	cell *Cell
}

// stopped is what ends a cell: a panic value inside host functions, the reason outside.
type stopped struct{ err error }

func (s *stopped) Error() string { return s.err.Error() }
func (s *stopped) Unwrap() error { return s.err }

// Fail ends the cell with err. It is called from host functions and does not return.
func (c *Cell) Fail(err error) {
	c.stop(err)
	panic(c.stopped.Load())
}

// Do runs fn, which may end the cell as host functions do, where no guest code is under way. It returns why the cell ended.
func (c *Cell) Do(fn func()) (err error) {
	defer func() {
		switch s := recover().(type) {
		case nil:
		case *stopped:
			c.broken = true
			err = s.err
		default:
			panic(s)
		}
	}()
	fn()
	return nil
}
