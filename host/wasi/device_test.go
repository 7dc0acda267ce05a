package wasi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/host/cell"
)

// echo gives back what was written to it.
type echo struct {
	at   uint32
	kept []byte
}

func (e *echo) Write(_ *cell.Cell, at uint32, b []byte) { e.at, e.kept = at, append(e.kept, b...) }

func (e *echo) Read(_ *cell.Cell, n uint32) []byte {
	b := e.kept[:min(int(n), len(e.kept))]
	e.kept = e.kept[len(b):]
	return b
}

// do calls a function of the module in a cell with a vector at 64 that has n bytes at 100, and returns the function's result,
// the number that it left at 80, and 16 bytes at 100.
func do(t *testing.T, g *guest, name string, n uint32, args ...int64) (result uint64, count uint32, memory []byte) {
	t.Helper()
	c, err := image(t, caller(t, name, args...)).Cell(t.Context(), cell.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Guest = g
	c.PutU32(64, 100)
	c.PutU32(68, n)
	c.Write(100, []byte("hello"))
	if result, err = c.Call("f"); err != nil {
		t.Fatal(err)
	}
	return result, c.U32(80), append(memory, c.Read(100, 16)...)
}

func TestDevice(t *testing.T) {
	d := &echo{}
	g := &guest{}
	g.state.Device = d
	if result, n, _ := do(t, g, "fd_write", 5, 0, 64, 1, 80); result != 0 || n != 5 || string(d.kept) != "hello" || d.at != 100 {
		t.Errorf("write: error %d, %d bytes; the device has %q from %d", result, n, d.kept, d.at)
	}
	d.kept = []byte("abc")
	if result, n, m := do(t, g, "fd_read", 2, 0, 64, 1, 80); result != 0 || n != 2 || string(m[:5]) != "abllo" || string(d.kept) != "c" {
		t.Errorf("read: error %d, %d bytes, memory %q; the device has %q", result, n, m, d.kept)
	}
	if result, _, _ := do(t, &guest{}, "fd_write", 5, 0, 64, 1, 80); result == 0 {
		t.Error("the input can be written to where there is no device")
	}
	if result, _, _ := do(t, g, "fd_write", 5, 0, 64, 100_000, 80); result == 0 {
		t.Error("so many vectors can be written")
	}
}

func TestArguments(t *testing.T) {
	g := &guest{}
	g.state.Args = []string{"a", "bc"}
	if result, n, _ := do(t, g, "args_sizes_get", 0, 72, 80); result != 0 || n != 5 {
		t.Errorf("sizes: error %d, %d bytes", result, n)
	}
	result, at, m := do(t, g, "args_get", 0, 80, 100)
	if d := cmp.Diff("a\x00bc\x00", string(m[:5])); d != "" || result != 0 || at != 100 {
		t.Errorf("error %d, first at %d: %s", result, at, d)
	}
}
