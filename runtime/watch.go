package runtime

import (
	"sync"

	"github.com/skep-dev/skep/agent"
)

// watches tells those who wait for a run that it has ended.
type watches struct {
	mu    sync.Mutex
	byRun map[agent.RunID]*watch
}

type watch struct {
	ended chan struct{}
	n     int // who wait
}

func (w *watches) add(id agent.RunID) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byRun == nil {
		w.byRun = make(map[agent.RunID]*watch)
	}
	one := w.byRun[id]
	if one == nil {
		one = &watch{ended: make(chan struct{})}
		w.byRun[id] = one
	}
	one.n++
	return one
}

func (w *watches) remove(id agent.RunID, one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.n--; one.n == 0 && w.byRun[id] == one {
		delete(w.byRun, id)
	}
}

// ended is called after the end of a run is durable.
func (w *watches) ended(id agent.RunID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one, ok := w.byRun[id]; ok {
		close(one.ended)
		delete(w.byRun, id)
	}
}
