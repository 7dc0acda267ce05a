package gateway

import (
	"sync"

	"github.com/skep-dev/skep/gateway/cache"
)

// flights are the requests under way whose answers may be kept, so that who asks the same meanwhile waits for that answer. The zero value is ready.
type flights struct {
	mu    sync.Mutex
	under map[cache.Key]chan struct{}
}

// join returns what is closed once the request that is under way has ended. Where there is none, ended is to be called when the caller's own has.
func (f *flights) join(k cache.Key) (wait <-chan struct{}, ended func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.under[k]; ok {
		return c, nil
	}
	if f.under == nil {
		f.under = map[cache.Key]chan struct{}{}
	}
	c := make(chan struct{})
	f.under[k] = c
	return nil, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.under, k)
		close(c)
	}
}
