package api

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store/memkv"
)

// rawSocket is a client without buffers or goroutines of its own.
func (r *rig) rawSocket(target string) (net.Conn, error) {
	nc, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n", target, r.token)
	br := bufio.NewReaderSize(nc, 512)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("%s", res.Status)
	}
	_, err = rawFrame(br)
	return nc, err
}

// rawFrame reads one text frame of less than 64 KiB.
func rawFrame(r io.Reader) (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	size := int(head[1])
	if size == 126 { // RFC 6455, section 5.2
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", err
		}
		size = int(binary.BigEndian.Uint16(head[:]))
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return string(b), err
}

func rawWrite(w io.Writer, text string) error {
	_, err := w.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)) // of less than 126 bytes
	return err
}

func memory() uint64 {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// Connections with instances that sleep cost little, stay open, and each is woken by what is for it. SKEP_SOCKETS sets how many.
func TestSleepingSockets(t *testing.T) {
	t.Run("plain", func(t *testing.T) { sleepingSockets(t, "") })
	t.Run("events", func(t *testing.T) { sleepingSockets(t, `{"type":"skep_hello","events":true}`) })
}

func manySockets(unless int) int {
	if n, err := strconv.Atoi(os.Getenv("SKEP_SOCKETS")); err == nil {
		return n
	}
	return unless
}

func sleepingSockets(t *testing.T, hello string) {
	n := manySockets(500)
	r := socketRig(t, nil, map[string]runtimetest.Func{
		"onSocketMessage": func(context.Context, host.Call) (agent.Payload, error) { return none(nil) },
		abi.FunctionMessage: func(ctx context.Context, c host.Call) (agent.Payload, error) {
			ev := eventOf(c)
			text := "got " + *ev.Text
			return none(send(ctx, c, abi.SocketSend{To: []string{ev.Socket.ID}, Text: &text}))
		},
	})
	target := func(i int) string { return fmt.Sprintf("/v1/agents/a/instances/k%d/ws", i) }
	if nc, err := r.rawSocket(target(n)); err != nil { // what is there once
		t.Fatal(err)
	} else {
		defer nc.Close()
	}
	before := memory()
	conns := make([]net.Conn, n)
	each(t, n, func(i int) (err error) {
		if conns[i], err = r.rawSocket(target(i)); err == nil && hello != "" {
			if err = rawWrite(conns[i], hello); err == nil {
				_, err = rawFrame(conns[i])
			}
		}
		return err
	})
	cost := int64(memory()-before) / int64(n)
	t.Logf("%d sockets: %d bytes each, both ends and the instance's records together", n, cost)
	if cost > 20<<10 {
		t.Errorf("a sleeping socket costs %d bytes, more than 20 KiB", cost)
	}
	if stats := r.s.rt.Stats(); stats.Calls != 0 {
		t.Errorf("%+v", stats)
	}
	for i, nc := range conns { // all are there still
		if err := rawWrite(nc, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, nc := range conns {
		want := fmt.Sprintf("got %d", i)
		if got, err := rawFrame(nc); err != nil || got != want {
			t.Fatalf("%q %v, want %q", got, err, want)
		}
		nc.Close()
	}
	until(t, func() bool { return r.s.rt.Stats().Sockets <= 1 })
}

// each does something for each of n, several at once.
func each(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var some sync.WaitGroup
	for w := range 16 {
		some.Go(func() {
			for i := w; i < n; i += 16 {
				if err := do(i); err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
			}
		})
	}
	some.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// Clients of sleeping instances whose server ends get, from the next one, what was emitted while they were away and what comes then, each event once and in
// order, from where they were. SKEP_SOCKETS sets how many.
func TestSleepingSocketsGoOn(t *testing.T) {
	n, db, dir := manySockets(100), memkv.New(), t.TempDir()
	defer db.Close()
	begin := func() *rig {
		r := startOn(t, nil, db, dir)
		r.cells.Funcs["onSocketMessage"] = func(context.Context, host.Call) (agent.Payload, error) { return none(nil) }
		r.cells.Funcs["tell"] = func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return none(runtimetest.Emit(ctx, c, "told", string(c.Input.Body)))
		}
		return r
	}
	key := func(i int) string { return fmt.Sprint("k", i) }
	type position struct{ Life, Version, Events int64 }
	conns, at := make([]net.Conn, n), make([]position, n)
	connect := func(r *rig, i int, hello string) (err error) {
		if conns[i], err = r.rawSocket("/v1/agents/a/instances/" + key(i) + "/ws?hello=true"); err != nil {
			return err
		}
		if err = rawWrite(conns[i], hello); err != nil {
			return err
		}
		text, err := rawFrame(conns[i])
		if err != nil {
			return err
		}
		var ready struct {
			Type string
			position
		}
		if err = json.Unmarshal([]byte(text), &ready); err == nil && ready.Type != "skep_ready" {
			err = fmt.Errorf("%s", text)
		}
		if at[i].Life == 0 {
			at[i] = ready.position
		}
		return err
	}
	tell := func(r *rig, i int, text string) error {
		_, _, err := r.c.CallInstance(t.Context(), "a", key(i), "tell", agent.Text(text), 0)
		return err
	}
	told := func(i int, want ...string) error {
		for _, w := range want {
			text, err := rawFrame(conns[i])
			if err != nil {
				return err
			}
			var f struct {
				Type  string
				Event struct {
					Seq  int64
					Data string
				}
			}
			if err := json.Unmarshal([]byte(text), &f); err != nil {
				return err
			}
			if f.Type != "skep_event" || f.Event.Seq <= at[i].Events || f.Event.Data != w {
				return fmt.Errorf("%s, want %s after event %d", text, w, at[i].Events)
			}
			at[i].Events = f.Event.Seq
		}
		return nil
	}

	r := begin()
	r.agent("a")
	each(t, n, func(i int) error {
		return errors.Join(connect(r, i, `{"type":"skep_hello","events":true}`), tell(r, i, "one"), told(i, "one"))
	})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = begin()
	each(t, n, func(i int) error {
		conns[i].Close()
		return errors.Join(tell(r, i, "two"), tell(r, i, "three"))
	})
	each(t, n, func(i int) error {
		return connect(r, i, fmt.Sprintf(`{"type":"skep_hello","events":true,"resume":{"life":%d,"state":0,"events":%d}}`, at[i].Life, at[i].Events))
	})
	each(t, n, func(i int) error { return errors.Join(tell(r, i, "four"), told(i, "two", "three", "four")) })
	for _, nc := range conns {
		nc.Close()
	}
}
