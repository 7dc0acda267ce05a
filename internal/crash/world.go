package main

import (
	"errors"
	"net"
	"net/http"
	"sync"
)

// world is the outside world: a server that knows requests by their idempotency keys and counts how often each came.
type world struct {
	url    string
	server *http.Server
	ended  chan error

	mu   sync.Mutex
	came map[string]int
}

func newWorld() (*world, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &world{url: "http://" + ln.Addr().String() + "/", came: map[string]int{}, ended: make(chan error, 1)}
	w.server = &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.came[r.Header.Get("Idempotency-Key")]++
	})}
	go func() { w.ended <- w.server.Serve(ln) }()
	return w, nil
}

func (w *world) close() error {
	err := w.server.Close()
	if ended := <-w.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// count is how often a request came.
func (w *world) count(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.came[key]
}
