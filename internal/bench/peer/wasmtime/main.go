// Wasmtime is the peer of figure P8. It reads one JSON request a line and answers each with the CPU time that it took. It
// is a module of its own, for it needs a C compiler and a library of 50 MB, which Skep does not.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/bytecodealliance/wasmtime-go/v44"
)

// request loads a module under a name, or calls a function of one that is loaded.
type request struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Fuel bool   `json:"fuel,omitempty"` // meter it
	Call string `json:"call,omitempty"`
	Arg  int32  `json:"arg,omitempty"`
}

type answer struct {
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

type loaded struct {
	store    *wasmtime.Store
	instance *wasmtime.Instance
	fuel     bool
}

func main() {
	runtime.LockOSThread()
	all := map[string]*loaded{}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q request
		if in.Decode(&q) != nil {
			return
		}
		var a answer
		var err error
		if q.File != "" {
			all[q.Name], err = load(q)
		} else {
			a.Seconds, err = all[q.Name].call(q.Call, q.Arg)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if out.Encode(a) != nil {
			return
		}
	}
}

// load instantiates a module and runs its initialiser, if it has one.
func load(q request) (*loaded, error) {
	config := wasmtime.NewConfig()
	config.SetConsumeFuel(q.Fuel)
	engine := wasmtime.NewEngineWithConfig(config)
	module, err := wasmtime.NewModuleFromFile(engine, q.File)
	if err != nil {
		return nil, err
	}
	linker := wasmtime.NewLinker(engine)
	if err := linker.DefineWasi(); err != nil {
		return nil, err
	}
	l := &loaded{store: wasmtime.NewStore(engine), fuel: q.Fuel}
	l.store.SetWasi(wasmtime.NewWasiConfig())
	if err := l.refuel(); err != nil {
		return nil, err
	}
	if l.instance, err = linker.Instantiate(l.store, module); err != nil {
		return nil, err
	}
	if start := l.instance.GetFunc(l.store, "_initialize"); start != nil {
		_, err = start.Call(l.store)
	}
	return l, err
}

func (l *loaded) refuel() error {
	if !l.fuel {
		return nil
	}
	return l.store.SetFuel(math.MaxInt64)
}

func (l *loaded) call(name string, arg int32) (float64, error) {
	if l == nil {
		return 0, fmt.Errorf("no such module")
	}
	if err := l.refuel(); err != nil {
		return 0, err
	}
	f := l.instance.GetFunc(l.store, name)
	if f == nil {
		return 0, fmt.Errorf("no function %s", name)
	}
	before := threadCPU()
	_, err := f.Call(l.store, arg)
	return threadCPU() - before, err
}

// threadCPU is the CPU time of this thread in seconds.
func threadCPU() float64 {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&ts)), 0)
	return float64(ts.Nano()) / 1e9
}
