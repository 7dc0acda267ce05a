package cell

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Env is what a cell gets from its host for one life: its limits, its clocks and its ways out.
type Env struct {
	Tenant agent.App    // a used cell is never reset for another tenant
	Agent  string       // of the tenant, by which its share of the processors is shared; may be empty
	Weight int          // of the tenant against others; 0 means 1
	Limits agent.Limits // zero fields mean the defaults

	// Calls answers the guest's requests; nil refuses each. It may run on many goroutines at once.
	Calls func(ctx context.Context, name string, in []byte) ([]byte, error)
	// Log takes a line of console output; nil drops it. It runs on the cell's goroutine.
	Log func(level agent.LogLevel, line string)

	Now    func() time.Time // nil means the system's clock
	Random io.Reader        // nil means the system's randomness

	// While an image is made, no cell has come of it: guests should refuse what must differ from cell to cell.
	Imaging bool
}

func (e *Env) fill() {
	e.Limits = e.Limits.Or(agent.DefaultLimits())
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Random == nil {
		e.Random = rand.Reader
	}
	if e.Log == nil {
		e.Log = func(agent.LogLevel, string) {}
	}
	if e.Calls == nil {
		e.Calls = func(context.Context, string, []byte) ([]byte, error) {
			return nil, agent.Errorf(agent.Denied, "nothing is granted here")
		}
	}
}
