package api

import (
	"bufio"
	"context"
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

// rawFrame reads one short text frame.
func rawFrame(r io.Reader) (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	b := make([]byte, head[1])
	_, err := io.ReadFull(r, b)
	return string(b), err
}

func rawWrite(w io.Writer, text string) error {
	_, err := w.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...))
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

func sleepingSockets(t *testing.T, hello string) {
	n := 500
	if s := os.Getenv("SKEP_SOCKETS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
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
	var some sync.WaitGroup
	for w := range 16 {
		some.Go(func() {
			for i := w; i < n; i += 16 {
				nc, err := r.rawSocket(target(i))
				if err == nil && hello != "" {
					if err = rawWrite(nc, hello); err == nil {
						_, err = rawFrame(nc)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				conns[i] = nc
			}
		})
	}
	some.Wait()
	if t.Failed() {
		return
	}
	each := int64(memory()-before) / int64(n)
	t.Logf("%d sockets: %d bytes each, both ends and the instance's records together", n, each)
	if each > 20<<10 {
		t.Errorf("a sleeping socket costs %d bytes, more than 20 KiB", each)
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
