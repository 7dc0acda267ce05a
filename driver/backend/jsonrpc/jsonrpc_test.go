package jsonrpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver/backend/jsonrpc"
)

// pipe is a Pipe whose other end is in the test.
type pipe struct {
	in     *io.PipeReader // what the connection reads
	out    *io.PipeWriter // what it writes
	closed sync.Once
}

func (p *pipe) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *pipe) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p *pipe) CloseInput() error           { p.closed.Do(func() { _ = p.out.Close() }); return nil }

// rig is a connection that runs, with what it was told.
type rig struct {
	*jsonrpc.Conn
	says  *io.PipeWriter
	hears *json.Decoder
	ended chan error

	more chan string
}

func newRig(t *testing.T, bare bool) *rig {
	t.Helper()
	in, says := io.Pipe()
	hears, out := io.Pipe()
	r := &rig{says: says, hears: json.NewDecoder(hears), ended: make(chan error, 1), more: make(chan string, 100)}
	r.Conn = jsonrpc.New(&pipe{in: in, out: out}, &jsonrpc.Options{
		Bare:   bare,
		Notify: func(method string, params json.RawMessage) { r.note("notify %s %s", method, params) },
		Ask:    func(id jsonrpc.ID, method string, params json.RawMessage) { r.note("ask %s %s %s", id, method, params) },
		Junk:   func(line []byte, why string) { r.note("junk %.20s", line) },
	})
	go func() { r.ended <- r.Run() }()
	t.Cleanup(func() {
		_ = says.Close()
		go func() { _, _ = io.Copy(io.Discard, hears) }()
		if err := <-r.ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return r
}

func (r *rig) note(format string, args ...any) { r.more <- fmt.Sprintf(format, args...) }

func (r *rig) say(t *testing.T, lines ...string) {
	t.Helper()
	if _, err := io.WriteString(r.says, strings.Join(lines, "\n")+"\n"); err != nil {
		t.Fatal(err)
	}
}

// hear is the next message that the connection writes.
func (r *rig) hear(t *testing.T) string {
	t.Helper()
	var raw json.RawMessage
	if err := r.hears.Decode(&raw); err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func (r *rig) next(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, <-r.more)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what came (-want +got):\n%s", diff)
	}
}

func TestMessages(t *testing.T) {
	r := newRig(t, false)
	r.say(t, `{"jsonrpc":"2.0","method":"a","params":{"x":1}}`, ``, `hello`, `{"id":7,"method":"b"}`, `{"id":"x","method":"c","params":[]}`, `{"id":99,"result":1}`, `{}`, `{"id":`, `[1]`)
	r.next(t, `notify a {"x":1}`, `junk hello`, `ask 7 b `, `ask "x" c []`, `junk {"id":99,"result":1}`, `junk {}`, `junk {"id":`, `junk [1]`)
	_ = r.Reply(jsonrpc.ID("7"), map[string]any{"ok": true})
	if got := r.hear(t); got != `{"jsonrpc":"2.0","id":7,"result":{"ok":true}}` {
		t.Error(got)
	}
	_ = r.Refuse(jsonrpc.ID(`"x"`), jsonrpc.NoMethod, "no")
	if got := r.hear(t); got != `{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"no"}}` {
		t.Error(got)
	}
	_ = r.Tell("bye", nil)
	if got := r.hear(t); got != `{"jsonrpc":"2.0","method":"bye"}` {
		t.Error(got)
	}
}

func TestBare(t *testing.T) {
	r := newRig(t, true)
	_ = r.Tell("initialized", map[string]any{})
	if got := r.hear(t); got != `{"method":"initialized","params":{}}` {
		t.Error(got)
	}
}

// The answer to a call is handled after what was said before it.
func TestOrder(t *testing.T) {
	r := newRig(t, false)
	r.Go("turn", nil, func(raw json.RawMessage, err error) { r.note("answer %s %v", raw, err) })
	r.hear(t)
	r.say(t, `{"method":"a"}`, `{"method":"b"}`, `{"id":1,"result":{"n":1}}`, `{"method":"c"}`)
	r.next(t, `notify a `, `notify b `, `answer {"n":1} <nil>`, `notify c `)
}

func TestCall(t *testing.T) {
	r := newRig(t, false)
	got := make(chan error, 1)
	var v struct{ N int }
	go func() { got <- r.Call(t.Context(), "one", nil, &v) }()
	r.hear(t)
	r.say(t, `{"id":1,"result":{"n":5}}`)
	if err := <-got; err != nil || v.N != 5 {
		t.Errorf("%v %v", v, err)
	}
	go func() { got <- r.Call(t.Context(), "two", nil, nil) }()
	r.hear(t)
	r.say(t, `{"id":"2","error":{"code":-32000,"message":"not signed in"}}`) // an id that came back as text
	var e *jsonrpc.Error
	if err := <-got; !errors.As(err, &e) || e.Code != -32000 || !strings.Contains(err.Error(), "two: not signed in") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { got <- r.Call(ctx, "three", nil, nil) }()
	r.hear(t)
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.say(t, `{"id":3,"result":null}`, `{"method":"after"}`) // late, and of no harm
	r.next(t, "notify after ")
}

// What waits when the agent ends fails, and what comes after it too.
func TestEnd(t *testing.T) {
	r := newRig(t, false)
	got := make(chan error, 1)
	go func() { got <- r.Call(t.Context(), "one", nil, nil) }()
	r.hear(t)
	_ = r.says.Close()
	if err := <-got; agent.KindOf(err) != agent.Unavailable {
		t.Errorf("%v", err)
	}
	if err := r.Call(t.Context(), "two", nil, nil); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("%v", err)
	}
	if err := r.Tell("three", nil); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("%v", err)
	}
}

// An agent that does not read cannot make us wait, or keep more than so much.
func TestDeaf(t *testing.T) {
	r := newRig(t, false)
	big := strings.Repeat("x", 1<<20)
	var err error
	for range 20 {
		if err = r.Tell("noise", big); err != nil {
			break
		}
	}
	if agent.KindOf(err) != agent.Unavailable {
		t.Errorf("20 MiB for an agent that does not read: %v", err)
	}
	r.say(t, `{"method":"still here"}`)
	r.next(t, "notify still here ")
}

// bytesPipe is a Pipe with nothing but what is read.
type bytesPipe struct{ bytes.Reader }

func (*bytesPipe) Write(b []byte) (int, error) { return len(b), nil }
func (*bytesPipe) CloseInput() error           { return nil }

func FuzzRun(f *testing.F) {
	for _, s := range []string{
		"", "{}\n", `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"id":1,"error":{"code":1,"message":"x","data":[1]}}`, `{"method":"a"}` + "\n" + `{"id":{},"method":"b"}`,
		`{"id":null,"method":"a","params":null}`, "\xff\xfe\n{\n", `{"id":[1],"method":"x"}`, `{"error":null,"id":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c *jsonrpc.Conn
		p := &bytesPipe{}
		p.Reset(text)
		c = jsonrpc.New(p, &jsonrpc.Options{
			Notify: func(string, json.RawMessage) {}, Junk: func([]byte, string) {},
			Ask: func(id jsonrpc.ID, _ string, _ json.RawMessage) {
				if err := c.Reply(id, nil); err != nil {
					t.Errorf("an id that came cannot be answered: %v", err)
				}
			},
		})
		done := make(chan error, 2)
		c.Go("one", nil, func(json.RawMessage, error) { done <- nil })
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		<-done
	})
}
