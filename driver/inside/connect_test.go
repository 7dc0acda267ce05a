package inside_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// cutter is between the driver and the control plane, and cuts each connection after some bytes of either direction.
type cutter struct {
	to    string
	l     net.Listener
	limit func() (up, down int64) // of the next connection; negative for none
	wg    sync.WaitGroup

	mu   sync.Mutex
	cuts int
	live map[net.Conn]bool
	hold chan struct{} // when set, bytes are held until it is closed: half open
}

func (r *rig) between(limit func() (up, down int64)) *cutter {
	r.server = r.dir + "/plane.sock"
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &cutter{to: r.server, l: l, limit: limit, live: map[net.Conn]bool{}}
	c.wg.Go(c.run)
	r.t.Cleanup(func() {
		l.Close()
		c.cutAll()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) run() {
	for {
		down, err := c.l.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("unix", c.to)
		if err != nil {
			down.Close()
			continue
		}
		c.mu.Lock()
		c.live[down], c.live[up] = true, true
		c.mu.Unlock()
		most, least := c.limit()
		pass := func(to, from net.Conn, limit int64) {
			c.copy(to, from, limit)
			to.Close()
			from.Close()
			c.mu.Lock()
			delete(c.live, to)
			delete(c.live, from)
			c.mu.Unlock()
		}
		c.wg.Go(func() { pass(up, down, most) })
		c.wg.Go(func() { pass(down, up, least) })
	}
}

func (c *cutter) copy(to io.Writer, from io.Reader, limit int64) {
	buf := make([]byte, 4096)
	for limit != 0 {
		n := len(buf)
		if limit > 0 {
			n = int(min(int64(n), limit))
		}
		n, err := from.Read(buf[:n])
		if err != nil {
			return
		}
		limit -= int64(n)
		c.mu.Lock()
		hold := c.hold
		c.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts++
}

func (c *cutter) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.live {
		conn.Close()
	}
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// A connection that is cut at a thousand places, some of them within a frame of the hello, loses no event, doubles none and changes no order; commands are
// carried out once and answered.
func TestThousandCuts(t *testing.T) {
	cuts := 1000
	if testing.Short() {
		cuts = 100
	}
	const seed = 8
	rnd := rand.New(rand.NewPCG(seed, seed))
	r := newRig(t)
	on := true
	var mu sync.Mutex
	c := r.between(func() (up, down int64) {
		mu.Lock()
		defer mu.Unlock()
		if !on {
			return -1, -1
		}
		// An upgrade takes about 200 bytes up and 150 down, a hello 500 and a welcome 200: half of the cuts are among these.
		return 1 + rnd.Int64N(1+rnd.Int64N(12000)), 1 + rnd.Int64N(1+rnd.Int64N(2000))
	})
	r.serve(r.token)
	r.drive()
	calls := 0
	for c.count() < cuts {
		calls++
		id := fmt.Sprint("exec-", calls)
		script := fmt.Sprintf("echo %d >> count; i=0; while [ $i -lt 40 ]; do echo %d.$i; i=$((i+1)); done", calls, calls)
		out := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: id, Command: []string{script}, Show: true})
		if out.Code != 0 || !strings.HasSuffix(out.Stdout, fmt.Sprint(calls, ".39\n")) {
			t.Fatalf("%s: %+v", id, out)
		}
		// This one has no name by which the driver could know it again.
		do[driver.SetupResult](r, driver.DoSetup, driver.SetupArgs{Script: "echo x >> setups; sleep 0.02"})
	}
	mu.Lock()
	on = false
	mu.Unlock()
	c.cutAll()
	last := fmt.Sprint(calls, ".39\n")
	_, list := r.await(func(e driver.Event) bool {
		return e.Type == driver.ExecOutput && strings.Contains(string(e.Data), strings.TrimSpace(last))
	})
	var got, want strings.Builder
	for _, e := range list {
		var d driver.TextData
		_ = e.Read(&d)
		got.WriteString(d.Text)
	}
	for i := 1; i <= calls; i++ {
		for j := range 40 {
			fmt.Fprintf(&want, "%d.%d\n", i, j)
		}
	}
	if got.String() != want.String() {
		t.Errorf("after %d cuts and %d commands the output is not what was written", c.count(), calls)
	}
	counted := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "count", Command: []string{"wc -l < count; wc -l < setups"}})
	if n := strings.Fields(counted.Stdout); len(n) != 2 || n[0] != fmt.Sprint(calls) || n[1] != fmt.Sprint(calls) {
		t.Errorf("%s commands were carried out of %d", n, calls)
	}
	t.Logf("seed %d: %d cuts, %d commands, %d events", seed, c.count(), calls, len(list))
}

// A control plane that crashes again and again, while a turn runs, finds the driver again and has all of its events once.
func TestRestarts(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, prompt("1", "m", "flood 3000"))
	for range 10 {
		r.crash()
		r.serve("")
		r.ready()
	}
	if r.link.Hello().Token != "" {
		t.Error("a token was used after the first time")
	}
	_, list := r.turnEnd("1")
	n := 0
	for _, e := range list {
		var d driver.ToolData
		if e.Type == driver.ToolStarted && e.Read(&d) == nil {
			if d.ID != fmt.Sprint(n) {
				t.Fatalf("event %d is of %s", n, d.ID)
			}
			n++
		}
	}
	if n != 3000 {
		t.Errorf("%d events", n)
	}
	// The same turn, asked for by who does not know whether it was, is the same.
	do[any](r, driver.DoPrompt, prompt("1", "m", "flood 3000"))
}

// A crash between storing and acknowledging makes no doubles either.
func TestEventsThatCannotBeStored(t *testing.T) {
	r := newRig(t)
	fails := 5
	r.before = func(int64, []driver.Event) error {
		if fails--; fails >= 0 {
			return errors.New("the disk is full")
		}
		return nil
	}
	r.serve(r.token)
	r.drive()
	r.ready()
	do[any](r, driver.DoPrompt, prompt("1", "m", "flood 100"))
	if _, list := r.turnEnd("1"); len(list) != 104 {
		t.Errorf("%d events: %s", len(list), kinds(list))
	}
}

// While nothing is stored a flood waits in the box, within the ring; commands are still answered.
func TestFloodWaits(t *testing.T) {
	r := newRig(t)
	r.opts.Ring = 100 << 10
	release := make(chan struct{})
	r.serve(r.token)
	blocked := make(chan struct{})
	var once sync.Once
	r.before = func(int64, []driver.Event) error {
		once.Do(func() { close(blocked) })
		r.mu.Unlock()
		defer r.mu.Lock()
		<-release
		return nil
	}
	r.drive()
	r.ready()
	do[any](r, driver.DoPrompt, prompt("1", "m", "flood 5000"))
	<-blocked
	list := do[driver.Processes](r, driver.DoProcesses, nil)
	if len(list.List) != 1 || list.List[0].ID != "cli" {
		t.Errorf("%+v", list)
	}
	close(release)
	if _, list := r.turnEnd("1"); len(list) != 5004 {
		t.Errorf("%d events", len(list))
	}
}

// A connection over which nothing comes any more is given up by both, and another made.
func TestHalfOpen(t *testing.T) {
	r := newRig(t)
	r.opts.Heartbeat, r.opts.LostAfter = 200*time.Millisecond, 600*time.Millisecond // heartbeats that nobody takes would fill the socket after a minute
	c := r.between(func() (up, down int64) { return -1, -1 })
	r.serve(r.token)
	r.drive()
	r.ready()
	hold := make(chan struct{})
	c.mu.Lock()
	c.hold = hold
	c.mu.Unlock()
	defer close(hold)
	answered := make(chan error, 1)
	go func() { answered <- r.link.Do(r.ctx(), driver.DoProcesses, nil, nil) }()
	r.until("no second connection was made", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.live) > 2 {
			c.hold = nil // those from now on are whole
			return true
		}
		return false
	})
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// The token of the boot payload counts once: who has seen it comes too late, and does not disturb the driver.
func TestTokenReplay(t *testing.T) {
	r := start(t)
	thief := r.opts
	err := runShort(t, thief)
	if err == nil || !strings.Contains(err.Error(), "used before") {
		t.Errorf("a second driver with the token: %v", err)
	}
	thief.Boot.Token = "guess"
	if err := runShort(t, thief); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("a driver with a guess: %v", err)
	}
	thief.Boot.Generation = generation - 1
	if err := runShort(t, thief); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("a driver of an older generation: %v", err)
	}
	do[driver.Processes](r, driver.DoProcesses, nil)
}

func TestNobodyComes(t *testing.T) {
	r := newRig(t)
	r.serve(r.token)
	defer r.http.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := r.link.Ready(ctx)
	if agent.KindOf(err) != agent.Unavailable || !strings.Contains(err.Error(), "the driver said nothing for") {
		t.Errorf("%v", err)
	}
	r.link.Close(nil)
	if err := r.link.Ready(r.ctx()); err == nil {
		t.Error("a closed link is ready")
	}
}
