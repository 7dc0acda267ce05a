package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

const (
	askers    = 16       // clients that ask models at once
	mostModel = 64 << 20 // bytes by which resident memory may grow
)

// modelSoak asks models through one server: whole and as streams, passed and translated, of a provider that sometimes fails, by clients of whom a fifth go
// away in the middle. The server is killed once in the middle. In the end the ledger must have each call that the provider saw, and none besides but
// those that were about to leave when the server was killed.
func (s settings) modelSoak(ctx context.Context, out io.Writer) error {
	var seen atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerModel(w, r, seen.Add(1))
	}))
	defer up.Close()
	srv := &server{program: s.program, dir: filepath.Join(s.dir, "models"), memory: s.memory}
	if err := srv.start(ctx); err != nil {
		return err
	}
	defer srv.kill()
	p := agent.Provider{Name: "up", URL: up.URL, Private: true, Protocols: []agent.Protocol{agent.MessageProtocol}}
	if _, err := srv.client().PutProvider(ctx, client.NewProvider{Provider: p}); err != nil {
		return err
	}
	idle, err := resident(srv)
	if err != nil {
		return err
	}
	n := tally{}
	for half := range 2 {
		most, err := s.askModels(ctx, srv, n, half == 0)
		if err != nil {
			return err
		}
		n["grown_kb"] = max(n["grown_kb"], int(most-idle)>>10)
	}
	var calls int64
	for wait := 0; wait < 100; wait++ { // those whose client has gone end a little later
		r, err := srv.client().Usage(ctx, client.UsageFilter{ModelFilter: client.ModelFilter{Provider: "up"}})
		if err != nil {
			return err
		}
		calls = 0
		if r.Total.Models != nil {
			calls = r.Total.Models.Calls
		}
		if calls >= seen.Load() && wait > 20 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintf(out, "models: %s, the provider saw %d calls, the ledger has %d, idle %d kB\n", n, seen.Load(), calls, idle>>10)
	var wrong []error
	if calls < seen.Load() || calls > seen.Load()+askers {
		wrong = append(wrong, fmt.Errorf("%w: the ledger has %d calls, and the provider saw %d", errBroken, calls, seen.Load()))
	}
	if grown := int64(n["grown_kb"]) << 10; grown > mostModel {
		wrong = append(wrong, fmt.Errorf("%w: resident memory grew by %d bytes", errBroken, grown))
	}
	if n["cut"] > 0 {
		wrong = append(wrong, fmt.Errorf("%w: %d streams ended without their end or an error", errBroken, n["cut"]))
	}
	return errors.Join(wrong...)
}

// askModels has clients ask for half of the time, and returns the most memory that the server had. With kill the server is killed then, and started again.
func (s settings) askModels(ctx context.Context, srv *server, n tally, kill bool) (most int64, err error) {
	busy, stop := context.WithTimeout(ctx, s.length/2)
	defer stop()
	var mu sync.Mutex
	var killed atomic.Bool
	var all sync.WaitGroup
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: askers}}
	defer c.CloseIdleConnections()
	for i := range askers {
		rng := rand.New(rand.NewPCG(s.seed, uint64(i)))
		all.Go(func() {
			for busy.Err() == nil && !killed.Load() {
				what := askModel(ctx, c, srv, rng)
				if killed.Load() { // whatever it was
					return
				}
				mu.Lock()
				n[what]++
				mu.Unlock()
			}
		})
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for busy.Err() == nil {
		select {
		case <-tick.C:
			now, err := resident(srv)
			if err != nil {
				break
			}
			most = max(most, now)
		case <-busy.Done():
		}
	}
	if kill {
		killed.Store(true)
		srv.kill()
	}
	all.Wait()
	if kill {
		err = srv.start(ctx)
	}
	return most, err
}

// askModel makes one request, and returns what came of it.
func askModel(ctx context.Context, c *http.Client, srv *server, rng *rand.Rand) string {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	body, path, end := `{"model":"up/m","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`, "/ai/v1/messages", "message_stop"
	if rng.IntN(2) == 0 {
		path, end = "/ai/v1/chat/completions", "[DONE]"
	}
	stream := rng.IntN(3) > 0
	if stream {
		body = `{"stream":true,` + body[1:]
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+srv.addr+path, strings.NewReader(body))
	if err != nil {
		return "not asked"
	}
	req.Header.Set("Authorization", "Bearer "+srv.token)
	leaves := rng.IntN(5) == 0
	if leaves && rng.IntN(2) == 0 {
		time.AfterFunc(time.Duration(rng.IntN(5))*time.Millisecond, stop)
	}
	res, err := c.Do(req)
	if err != nil {
		if leaves {
			return "left"
		}
		return "refused"
	}
	defer res.Body.Close()
	if leaves {
		_, _ = io.ReadFull(res.Body, make([]byte, 200))
		return "left"
	}
	text, err := io.ReadAll(res.Body)
	switch {
	case res.StatusCode != http.StatusOK:
		return "failed"
	case !stream && err == nil, strings.Contains(string(text), end) && err == nil:
		return "answered"
	case strings.Contains(string(text), `"error"`):
		return "broken"
	}
	return "cut"
}

// answerModel is the provider: each tenth call fails at once, each twentieth in the middle of its stream.
func answerModel(w http.ResponseWriter, r *http.Request, n int64) {
	body, _ := io.ReadAll(r.Body)
	if n%10 == 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`)
		return
	}
	if !strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	frame := func(name, data string) {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: {\"type\":\"%s\"%s}\n\n", name, name, data)
		_ = flush.Flush()
	}
	frame("message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":10,"output_tokens":1}}`)
	frame("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
	for i := range 40 {
		frame("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"hello "}`)
		if n%20 == 7 && i == 20 {
			panic(http.ErrAbortHandler)
		}
	}
	frame("content_block_stop", `,"index":0`)
	frame("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}`)
	frame("message_stop", "")
}

// resident is how many bytes of a server are in memory.
func resident(s *server) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, errors.New("the kernel's account of the server's memory is cut short")
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
