package worker

import (
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// role is what a process is for.
type role uint8

const (
	roleWorker role = iota + 1
	rolePrepare
)

// hello is the first thing a process is told. It is the only thing it ever knows of the machine.
type hello struct {
	Role     role
	CacheDir string
	Python   string
	Seed     []byte
	Copy     bool
	Images   int64
	Cells    int
	Waiting  int
	Loading  agent.Limits
	Memory   int64         // bytes it may write
	CPU      time.Duration // 0 means no limit
	NoFiles  bool          // as where there is no landlock
}

// ready is its answer.
type ready struct {
	Error string
	Notes []string // what of the confinement this system does not have
}

func (h hello) host() host.Options {
	o := host.Options{
		CacheDir: h.CacheDir, Python: h.Python, Seed: h.Seed, Copy: h.Copy, Images: h.Images, Cells: h.Cells, Waiting: h.Waiting, Loading: h.Loading,
	}
	if h.Role == roleWorker {
		o.Memory = h.cells()
	}
	return o
}

// Of the memory that a worker may write its cells have one half, so that one that asks for more is told, before the kernel
// refuses the process. Go's heap has three quarters of the other, after which it collects garbage harder.
func (h hello) cells() int64 { return h.Memory / 2 }
func (h hello) heap() int64 {
	if h.Role == roleWorker {
		return h.Memory / 8 * 3
	}
	return h.Memory / 4 * 3
}

// hello writes the first frame for a process of some role.
func (p *Pool) hello(r role) func(*encoder) {
	o := p.opts.Host
	h := hello{
		Role: r, CacheDir: o.CacheDir, Python: o.Python, Seed: o.Seed, Copy: o.Copy, Images: o.Images, Cells: o.Cells, Waiting: o.Waiting,
		Loading: o.Loading, Memory: p.opts.Memory, NoFiles: p.opts.noFiles,
	}
	if r == rolePrepare {
		h.Memory, h.CPU = p.opts.Prepare.Memory, p.opts.Prepare.CPU
	}
	return asJSON(h)
}

func asJSON(v any) func(*encoder) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs
	}
	return func(e *encoder) { *e = append(*e, b...) }
}
