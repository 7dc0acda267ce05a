package cell

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// wazero gives each api.Function a stack of its own that grows up to a constant of some 100 MB. To hold a guest to less,
// the refill function compares its own parameters, which lie on that stack, with the top of it. wazero does not tell the
// top, so it is read from its field; findStackLayout refuses to work with an engine laid out differently.
type stackLayout struct {
	top  uintptr // offset of the field stackTop
	size uintptr // offset of the length of the field stack
}

// wasm module: (func (export "f"))
var emptyFunction = []byte{
	0, 'a', 's', 'm', 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 'f', 0, 0, 10, 4, 1, 2, 0, 0x0b,
}

func findStackLayout() (stackLayout, error) {
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer func() { _ = r.Close(ctx) }()
	m, err := r.Instantiate(ctx, emptyFunction)
	if err != nil {
		return stackLayout{}, fmt.Errorf("probe the engine: %w", err)
	}
	t := reflect.TypeOf(m.ExportedFunction("f"))
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return stackLayout{}, fmt.Errorf("engine: %s is not laid out as expected", t)
	}
	top, ok1 := t.Elem().FieldByName("stackTop")
	stack, ok2 := t.Elem().FieldByName("stack")
	if !ok1 || !ok2 || top.Type.Kind() != reflect.Uintptr || stack.Type != reflect.TypeFor[[]byte]() {
		return stackLayout{}, fmt.Errorf("engine: %s has no known stack", t)
	}
	return stackLayout{top: top.Offset, size: stack.Offset + unsafe.Sizeof(uintptr(0))}, nil
}

// used returns how many bytes of fn's stack lie above at.
func (l stackLayout) used(fn api.Function, at *uint64) int64 {
	base := funcPointer(fn)
	top := *(*uintptr)(unsafe.Add(base, l.top))
	return int64(top - uintptr(unsafe.Pointer(at)))
}

// grown returns how many bytes fn's stack has.
func (l stackLayout) grown(fn api.Function) int64 {
	return int64(*(*int)(unsafe.Add(funcPointer(fn), l.size)))
}

// funcPointer returns the pointer in an interface value that holds one.
func funcPointer(fn api.Function) unsafe.Pointer {
	return (*[2]unsafe.Pointer)(unsafe.Pointer(&fn))[1]
}
