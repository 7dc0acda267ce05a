package link_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
)

const patience = 30 * time.Second

// plane is a Link at a socket. Its peers are written by hand, and may do what no driver does.
type plane struct {
	t      *testing.T
	link   *link.Link
	socket string

	mu     sync.Mutex
	stored []string
	states []string
	change chan struct{}
	events func() error
}

func newPlane(t *testing.T, change func(*link.Options)) *plane {
	t.Helper()
	p := &plane{t: t, socket: filepath.Join(t.TempDir(), "s"), change: make(chan struct{})}
	o := link.Options{
		Sandbox: "01BOX", Generation: 2, Token: "token", Key: "key", Log: slog.New(slog.DiscardHandler),
		Welcome: func(context.Context) (driver.WelcomeBody, error) { return driver.WelcomeBody{}, nil },
		Events: func(_ context.Context, first int64, list []driver.Event) error {
			if p.events != nil {
				if err := p.events(); err != nil {
					return err
				}
			}
			for i, e := range list {
				p.note(&p.stored, fmt.Sprint(first+int64(i), e.Type))
			}
			return nil
		},
		State: func(up bool, why error) { p.note(&p.states, fmt.Sprint(up, " ", why)) },
	}
	if change != nil {
		change(&o)
	}
	p.link = link.New(o)
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: p.link}
	go s.Serve(l)
	t.Cleanup(func() {
		p.link.Close(nil)
		s.Close()
		p.link.Wait()
	})
	return p
}

func (p *plane) note(list *[]string, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*list = append(*list, text)
	close(p.change)
	p.change = make(chan struct{})
}

// await waits until what is noted satisfies ok.
func (p *plane) await(what string, ok func() bool) {
	p.t.Helper()
	late := time.After(patience)
	for {
		p.mu.Lock()
		good, change := ok(), p.change
		p.mu.Unlock()
		if good {
			return
		}
		select {
		case <-change:
		case <-late:
			p.t.Fatalf("%s; stored are %v, states %v", what, p.stored, p.states)
		}
	}
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return c
}

// peer is one end of a connection.
type peer struct {
	t  *testing.T
	ws *websocket.Conn
}

func (p *plane) dial() *peer {
	p.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket)
	}}}
	ws, _, err := websocket.Dial(ctx(p.t), "ws://x"+driver.Path, &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		p.t.Fatal(err)
	}
	ws.SetReadLimit(driver.MaxMessage)
	p.t.Cleanup(func() { ws.CloseNow() })
	return &peer{p.t, ws}
}

func (c *peer) send(m *driver.Message) error {
	b, err := driver.Encode(m)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.ws.Write(ctx(c.t), websocket.MessageText, b)
}

func (c *peer) receive() (*driver.Message, error) {
	_, b, err := c.ws.Read(ctx(c.t))
	if err != nil {
		return nil, err
	}
	return driver.Decode(b)
}

// expect receives messages until one of a kind comes.
func (c *peer) expect(kind string) *driver.Message {
	c.t.Helper()
	for {
		m, err := c.receive()
		if err != nil {
			c.t.Fatalf("instead of %s: %v", kind, err)
		}
		if m.Kind == kind {
			return m
		}
	}
}

// cutOff expects that the connection ends.
func (c *peer) cutOff() {
	c.t.Helper()
	for {
		if _, err := c.receive(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				c.t.Fatal("the connection is still there")
			}
			return
		}
	}
}

func hello() driver.HelloBody {
	return driver.HelloBody{Version: driver.Version, Sandbox: "01BOX", Generation: 2, Token: "token", Nonce: "nonce"}
}

func (c *peer) hello(h driver.HelloBody) {
	c.t.Helper()
	if err := c.send(&driver.Message{Kind: driver.Hello, Body: driver.Body(h)}); err != nil {
		c.t.Fatal(err)
	}
}

// join is a driver that has become ready.
func (p *plane) join(change func(*driver.HelloBody)) *peer {
	p.t.Helper()
	h := hello()
	if change != nil {
		change(&h)
	}
	c := p.dial()
	c.hello(h)
	c.expect(driver.Welcome)
	if err := c.send(&driver.Message{Kind: driver.Ready}); err != nil {
		p.t.Fatal(err)
	}
	return c
}

func byKey(h *driver.HelloBody) { h.Token, h.Nonce, h.Key, h.Seq = "", "", "key", 1<<40 }

func events(first int64, kinds ...string) *driver.Message {
	b := driver.EventsBody{First: first}
	for _, k := range kinds {
		b.List = append(b.List, driver.Event{Type: k})
	}
	return &driver.Message{Kind: driver.Events, Body: driver.Body(b)}
}

func TestWhoIsLetIn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*driver.HelloBody)
		want   string
	}{
		"no token":         {func(h *driver.HelloBody) { h.Token = "" }, "not known"},
		"a guess":          {func(h *driver.HelloBody) { h.Token = "tokem" }, "not known"},
		"no nonce":         {func(h *driver.HelloBody) { h.Nonce = "" }, "no nonce"},
		"a wrong key":      {func(h *driver.HelloBody) { h.Key = "kez" }, "not known"},
		"another box":      {func(h *driver.HelloBody) { h.Sandbox = "01OTHER" }, "was replaced"},
		"older generation": {func(h *driver.HelloBody) { h.Generation = 1 }, "was replaced"},
		"newer generation": {func(h *driver.HelloBody) { h.Generation = 3 }, "was replaced"},
		"other version":    {func(h *driver.HelloBody) { h.Version = 99 }, "speaks version 99"},
		"negative":         {func(h *driver.HelloBody) { h.Seq = -1 }, "negative"},
		"forgetful":        {func(h *driver.HelloBody) { h.Seq = 4 }, "knows events up to 4"},
		"long":             {func(h *driver.HelloBody) { h.Driver = strings.Repeat("x", 2000) }, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, func(o *link.Options) { o.Acked = 5 })
			h := hello()
			h.Seq = 5
			c.change(&h)
			peer := p.dial()
			peer.hello(h)
			m := peer.expect(driver.Refused)
			if m.Fault == nil || !strings.Contains(m.Fault.Message, c.want) {
				t.Errorf("%+v", m.Fault)
			}
			peer.cutOff()
			if p.link.Up() || len(p.states) > 0 {
				t.Error("it changed something")
			}
		})
	}
}

func TestTokenCountsOnce(t *testing.T) {
	p := newPlane(t, nil)
	c := p.dial()
	c.hello(hello())
	c.expect(driver.Welcome)
	// The same driver, whose welcome may have been lost, may come again; another may not.
	again := p.dial()
	again.hello(hello())
	again.expect(driver.Welcome)
	other := hello()
	other.Nonce = "another"
	thief := p.dial()
	thief.hello(other)
	if m := thief.expect(driver.Refused); !strings.Contains(m.Fault.Message, "used before") {
		t.Errorf("%+v", m.Fault)
	}
	if err := again.send(&driver.Message{Kind: driver.Ready}); err != nil {
		t.Fatal(err)
	}
	if err := p.link.Ready(ctx(t)); err != nil {
		t.Fatal(err)
	}
	// When it is ready, it has the key.
	late := p.dial()
	late.hello(hello())
	late.expect(driver.Refused)
}

func TestTokenGetsOld(t *testing.T) {
	p := newPlane(t, func(o *link.Options) { o.TokenLife = time.Nanosecond })
	c := p.dial()
	c.hello(hello())
	if m := c.expect(driver.Refused); !strings.Contains(m.Fault.Message, "older than") {
		t.Errorf("%+v", m.Fault)
	}
}

func TestNewerConnectionWins(t *testing.T) {
	p := newPlane(t, nil)
	old := p.join(nil)
	p.join(byKey)
	old.cutOff()
	if !p.link.Up() {
		t.Error("it is not up")
	}
}

// Duplicates are dropped by number, and what is new in a batch that is partly known is stored.
func TestDuplicates(t *testing.T) {
	p := newPlane(t, nil)
	c := p.join(nil)
	for _, m := range []*driver.Message{events(1, "a", "b"), events(1, "a", "b"), events(2, "b", "c"), events(4, "d")} {
		if err := c.send(m); err != nil {
			t.Fatal(err)
		}
	}
	for {
		if m := c.expect(driver.Ack); m.Seq == 4 {
			break
		}
	}
	if got := fmt.Sprint(p.stored); got != "[1 a 2 b 3 c 4 d]" && got != "[1a 2b 3c 4d]" {
		t.Error(got)
	}
}

// A driver that does not keep to the protocol is cut off, and after some times lost.
func TestBroken(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		want string
	}{
		"a gap":           {string(mustEncode(events(3, "x"))), "events 1 to 2 are missing"},
		"no events":       {string(mustEncode(events(1))), "1 to 64"},
		"from zero":       {string(mustEncode(events(0, "x"))), "numbered from 1"},
		"no type":         {string(mustEncode(events(1, ""))), "no type"},
		"far away":        {`{"kind":"events","body":{"first":9223372036854775807,"list":[{"type":"x","time":"2026-01-01T00:00:00Z"}]}}`, "numbered from 1"},
		"too many":        {string(mustEncode(events(1, strings.Split(strings.Repeat("x ", 65), " ")...))), "1 to 64"},
		"too long":        {`{"kind":"events","body":{"first":1,"list":[{"type":"x","time":"2026-01-01T00:00:00Z","data":"` + strings.Repeat("x", driver.MaxEvent) + `"}]}}`, "more than"},
		"no JSON":         {"{", "cannot be read"},
		"no UTF-8":        {"{\"kind\":\"\xff\"}", "UTF-8"},
		"deep":            {`{"kind":"events","body":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}", "depth"},
		"ready again":     {`{"kind":"ready"}`, "ready before"},
		"of the other":    {`{"kind":"command"}`, `of the kind "command"`},
		"beyond a bound":  {`{"kind":"heartbeat","name":"` + strings.Repeat("x", driver.MaxMessage) + `"}`, "above 1048576"},
		"nothing at all ": {"", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, nil)
			for i := range 8 {
				c2 := p.join(func(h *driver.HelloBody) {
					if i > 0 {
						byKey(h)
					}
				})
				_ = c2.ws.Write(ctx(t), websocket.MessageText, []byte(c.raw))
				c2.cutOff()
			}
			p.await("it was not lost", func() bool {
				return len(p.states) > 0 && strings.HasPrefix(p.states[len(p.states)-1], "false") && strings.Contains(p.states[len(p.states)-1], c.want)
			})
			if err := p.link.Do(ctx(t), "x", nil, nil); !errors.Is(err, link.ErrLost) || agent.KindOf(err) != agent.Invalid {
				t.Errorf("a command: %v", err)
			}
			if len(p.stored) > 0 {
				t.Errorf("stored was %v", p.stored)
			}
		})
	}
}

func mustEncode(m *driver.Message) []byte {
	b, err := driver.Encode(m)
	if err != nil {
		panic(err)
	}
	return b
}

// A driver that sends more than it may waits: what is read and not stored is bounded, whatever it does.
func TestFlood(t *testing.T) {
	release := make(chan struct{})
	p := newPlane(t, nil)
	p.events = func() error { <-release; return nil }
	c := p.join(nil)
	big := driver.EventsBody{}
	data := driver.Body(strings.Repeat("x", driver.MaxEvent-100))
	for range 10 {
		big.List = append(big.List, driver.Event{Type: "x", Data: data})
	}
	sent := 0
	for ; sent < 1000; sent++ {
		big.First = int64(sent*10 + 1)
		b := mustEncode(&driver.Message{Kind: driver.Events, Body: driver.Body(big)})
		short, cancel := context.WithTimeout(ctx(t), 200*time.Millisecond)
		err := c.ws.Write(short, websocket.MessageText, b)
		cancel()
		if err != nil {
			break
		}
	}
	if sent > 2*driver.MaxWindow+4 { // those that wait, one that is stored, one that is read, and what the socket holds
		t.Errorf("%d batches went into a plane that stores nothing", sent)
	}
	close(release)
}

// A driver of whose events there are too many is lost.
func TestTooMuch(t *testing.T) {
	p := newPlane(t, nil)
	p.events = func() error { return &agent.Error{Kind: agent.Exhausted, Msg: "that is enough", Err: link.ErrTooMuch} }
	c := p.join(nil)
	if err := c.ws.Write(ctx(t), websocket.MessageText, mustEncode(events(1, "x"))); err != nil {
		t.Fatal(err)
	}
	p.await("it was not lost", func() bool { return p.link.Err() != nil })
	if err := p.link.Err(); !errors.Is(err, link.ErrLost) || agent.KindOf(err) != agent.Exhausted || !strings.Contains(err.Error(), "that is enough") {
		t.Error(err)
	}
}

// A silent driver is lost; one that waits because we do not store is not.
func TestSilence(t *testing.T) {
	p := newPlane(t, func(o *link.Options) { o.LostAfter = 100 * time.Millisecond })
	c := p.join(nil)
	answered := make(chan error, 1)
	go func() { answered <- p.link.Do(ctx(t), "x", nil, nil) }()
	c.expect(driver.Command)
	p.await("it was not lost", func() bool {
		return fmt.Sprint(p.states) == "[true <nil> false the driver said nothing for 100ms: the driver is lost]"
	})
	if err := <-answered; !errors.Is(err, link.ErrLost) || agent.KindOf(err) != agent.Unavailable {
		t.Errorf("%v", err)
	}
	// It may come back.
	p.join(byKey)
	p.await("it is not back", func() bool { return len(p.states) > 2 && p.states[2] == "true <nil>" })
}

// A Link of a later process, to which nobody comes back, is lost too.
func TestNobodyComesBack(t *testing.T) {
	p := newPlane(t, func(o *link.Options) { o.Token, o.LostAfter = "", 50*time.Millisecond })
	if err := p.link.Ready(ctx(t)); !errors.Is(err, link.ErrLost) {
		t.Errorf("%v", err)
	}
	p.await("nobody was told", func() bool { return len(p.states) == 1 })
}

func TestSlowStoreIsNotSilence(t *testing.T) {
	release := make(chan struct{})
	p := newPlane(t, func(o *link.Options) { o.LostAfter = 100 * time.Millisecond })
	p.events = func() error { <-release; return nil }
	c := p.join(nil)
	for i := range int64(driver.MaxWindow + 2) { // one is stored, some wait, and at the last the reader is stuck
		if err := c.send(events(i+1, "x")); err != nil {
			t.Fatal(err)
		}
	}
	timer := time.NewTimer(500 * time.Millisecond)
	<-timer.C
	close(release)
	p.await("not all was stored", func() bool { return len(p.stored) == driver.MaxWindow+2 })
	if !p.link.Up() {
		t.Error("it was lost")
	}
}

// Commands are sent again, in their order, on each connection, until they are answered; a reply that comes twice is one.
func TestCommandsAreSentAgain(t *testing.T) {
	p := newPlane(t, nil)
	var done sync.WaitGroup
	for _, name := range []string{"first", "second"} {
		called := make(chan struct{})
		done.Go(func() {
			var out string
			close(called)
			if err := p.link.Do(ctx(t), name, nil, &out); err != nil || out != "did "+name {
				t.Errorf("%s: %q %v", name, out, err)
			}
		})
		<-called
		if name == "first" {
			c := p.join(nil)
			if m := c.expect(driver.Command); m.Name != "first" {
				t.Fatalf("%+v", m)
			}
			c.ws.CloseNow()
		}
	}
	c := p.join(byKey)
	ids := map[uint64]bool{}
	for _, name := range []string{"first", "second"} {
		m := c.expect(driver.Command)
		if m.Name != name || ids[m.ID] || m.ID>>63 != 0 {
			t.Errorf("%+v", m)
		}
		ids[m.ID] = true
		for range 2 {
			if err := c.send(&driver.Message{Kind: driver.Reply, ID: m.ID, Body: driver.Body("did " + name)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	done.Wait()
}

func TestCommandEnds(t *testing.T) {
	p := newPlane(t, nil)
	if err := p.link.Do(ctx(t), "x", strings.Repeat("x", driver.MaxMessage), nil); agent.KindOf(err) != agent.Exhausted {
		t.Errorf("a long one: %v", err)
	}
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := p.link.Do(short, "x", nil, nil); agent.KindOf(err) != agent.Unavailable || !strings.Contains(err.Error(), "did not answer x in time") {
		t.Errorf("a deadline: %v", err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.link.Do(gone, "x", nil, nil); agent.KindOf(err) != agent.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
	c := p.join(nil)
	answered := make(chan error, 1)
	go func() { answered <- p.link.Do(ctx(t), "y", nil, nil) }()
	m := c.expect(driver.Command)
	if m.Name != "y" {
		t.Errorf("one that was given up is sent: %+v", m)
	}
	if err := c.send(&driver.Message{Kind: driver.Reply, ID: m.ID, Fault: &driver.Fault{Kind: agent.Conflict, Message: "no", Hint: "wait"}}); err != nil {
		t.Fatal(err)
	}
	var e *agent.Error
	if err := <-answered; !errors.As(err, &e) || e.Kind != agent.Conflict || e.Msg != "no" || e.Hint != "wait" {
		t.Errorf("%v", err)
	}
	go func() { answered <- p.link.Do(ctx(t), "z", nil, nil) }()
	c.expect(driver.Command)
	p.link.Close(agent.Errorf(agent.Conflict, "it is over"))
	if err := <-answered; agent.KindOf(err) != agent.Conflict {
		t.Errorf("closed: %v", err)
	}
	if m := c.expect(driver.Bye); m.Fault == nil || m.Fault.Message != "it is over" {
		t.Errorf("%+v", m)
	}
}

// What was sent before a goodbye is stored before the driver counts as gone.
func TestBye(t *testing.T) {
	p := newPlane(t, nil)
	c := p.join(nil)
	for i := range int64(4) {
		if err := c.send(events(i+1, "x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.send(&driver.Message{Kind: driver.Bye, Fault: &driver.Fault{Kind: agent.Exhausted, Message: "no room"}}); err != nil {
		t.Fatal(err)
	}
	p.await("it is not gone", func() bool { return len(p.states) > 0 && strings.HasPrefix(p.states[len(p.states)-1], "false no room") })
	if len(p.stored) != 4 {
		t.Errorf("%v", p.stored)
	}
}

// Connections that say nothing do not keep the driver out for long, and are few.
func TestManyStrangers(t *testing.T) {
	p := newPlane(t, nil)
	for range 8 {
		p.dial()
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket)
	}}}
	if _, _, err := websocket.Dial(ctx(t), "ws://x"+driver.Path, &websocket.DialOptions{HTTPClient: client}); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a ninth stranger: %v", err)
	}
}

func TestStreamsAreForTheDriver(t *testing.T) {
	p := newPlane(t, nil)
	p.join(nil)
	st, err := p.link.Stream()
	if err != nil {
		t.Fatal(err)
	}
	try := func(id, key, upgrade string) int {
		conn, err := net.Dial("unix", p.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 0\r\n\r\n", driver.StreamPath, id, key, upgrade)
		var code int
		var proto string
		fmt.Fscanf(conn, "%s %d", &proto, &code)
		return code
	}
	if c := try("x", st.Args().Key, driver.StreamProtocol); c != 404 {
		t.Errorf("another id: %d", c)
	}
	if c := try(st.Args().ID, "x", driver.StreamProtocol); c != 404 {
		t.Errorf("another key: %d", c)
	}
	if c := try(st.Args().ID, st.Args().Key, "websocket"); c != 426 {
		t.Errorf("another protocol: %d", c)
	}
	if c := try(st.Args().ID, st.Args().Key, driver.StreamProtocol); c != 101 {
		t.Errorf("the right one: %d", c)
	}
	c, err := st.Conn(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, driver.ErrCut) {
		t.Errorf("a stream that was cut: %v", err)
	}
	c.Close()
	if _, err := st.Conn(ctx(t)); err == nil {
		t.Error("a closed stream has a connection")
	}
}
