//go:build linux

package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// misbehave is a worker that a guest has taken over. It says that it is ready, waits for a call, and then does not keep to
// the protocol.
func misbehave(how string) {
	conn, err := inherited()
	if err != nil {
		panic(err)
	}
	if how == "dead" {
		return
	}
	l := newLink(conn)
	go l.write()
	_ = l.read(func(f frame) error {
		switch f.kind {
		case frameHello:
			return l.post(frameReady, 0, asJSON(ready{}))
		case frameCall:
			_, _ = conn.Write(nonsense(how, f.id))
		case frameSource:
			m, err := decodeSource(f.body)
			res := resultMessage{output: agent.Text("it got code")}
			if err != nil || m.err != nil {
				res.output = agent.Text("it got no code")
			}
			return l.post(frameResult, 1, res.encode)
		}
		return nil
	})
}

func nonsense(how string, call uint64) []byte {
	ask := func(n uint64) func(*encoder) { return (&askMessage{ask: n, name: "x"}).encode }
	switch how {
	case "noise":
		return bytes.Repeat([]byte{0xff}, 1000)
	case "no kind":
		return appendFrame(nil, unknownFrame, call, nil)
	case "not its kind":
		return appendFrame(nil, frameCall, call, nil)
	case "a huge length":
		b := appendFrame(nil, frameResult, call, nil)
		binary.LittleEndian.PutUint32(b, maxFrame+1)
		return b
	case "an empty result":
		return appendFrame(nil, frameResult, call, nil)
	case "a result and more":
		return appendFrame(nil, frameResult, call, func(e *encoder) { (&resultMessage{}).encode(e); e.byte(0) })
	case "a kind of error that is not":
		return appendFrame(nil, frameResult, call, func(e *encoder) { *e = append(*e, 1, 200) })
	case "ready again":
		return appendFrame(nil, frameReady, 0, asJSON(ready{}))
	case "the same ask twice":
		return appendFrame(appendFrame(nil, frameAsk, call, ask(7)), frameAsk, call, ask(7))
	case "too many asks":
		var b []byte
		for n := range uint64(maxAsks + 1) {
			b = appendFrame(b, frameAsk, call, ask(n))
		}
		return b
	case "too many loads":
		var b []byte
		for n := range uint64(maxLoads * 8) {
			b = appendFrame(b, frameLoad, n, func(e *encoder) { e.text("wanted") })
		}
		return b
	case "too many loadings":
		var b []byte
		for range maxLoads + 1 {
			b = appendFrame(b, frameLoaded, 0, (&loadedMessage{agent: "a"}).encode)
		}
		return b
	case "a loading for nobody":
		return appendFrame(nil, frameLoaded, 0, (&loadedMessage{agent: "../x"}).encode)
	case "a rest that nobody asked for":
		return appendFrame(nil, frameAsk, call, (&askMessage{what: askRest, in: []byte{0, 0}}).encode)
	case "a delivery to nobody":
		return appendFrame(nil, frameAsk, call, (&askMessage{what: askDelivered}).encode)
	case "a clock that is not":
		return appendFrame(nil, frameAsk, call, (&askMessage{what: askNow}).encode)
	case "too much randomness":
		return appendFrame(nil, frameAsk, call, (&askMessage{what: askRandom, in: binary.AppendUvarint(nil, maxRandom+1)}).encode)
	case "an odd question":
		return appendFrame(nil, frameAsk, call, (&askMessage{what: questions}).encode)
	case "a suspension of what stays":
		return appendFrame(nil, frameResult, call, (&resultMessage{suspended: &host.Suspension{Snapshot: []byte("s")}}).encode)
	case "others' code":
		return appendFrame(nil, frameLoad, 1, func(e *encoder) { e.text("sha256:other") })
	}
	panic(how)
}

func TestHostileWorkers(t *testing.T) {
	for _, how := range []string{
		"dead", "noise", "no kind", "not its kind", "a huge length", "an empty result", "a result and more", "a kind of error that is not",
		"ready again", "the same ask twice", "too many asks", "too many loads", "too many loadings", "a loading for nobody",
		"a rest that nobody asked for", "a delivery to nobody", "a clock that is not", "too much randomness", "an odd question",
		"a suspension of what stays",
	} {
		t.Run(how, func(t *testing.T) {
			p, err := New(&Options{Args: []string{"hostile", how}, Host: host.Options{
				Load: func(ctx context.Context, _ agent.Digest) (agent.Source, error) {
					<-ctx.Done()
					return agent.Source{}, ctx.Err()
				},
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for range 2 {
				_, err = p.Call(t.Context(), host.Call{Plugin: "wanted", Random: rand.Reader, Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}})
				if !unavailable(err) {
					t.Error(err)
				}
			}
		})
	}
}

// A worker gets the code of its calls, and no other.
func TestWorkersGetNoCodeOfOthers(t *testing.T) {
	p, err := New(&Options{Args: []string{"hostile", "others' code"}, Host: host.Options{
		Load: func(context.Context, agent.Digest) (agent.Source, error) { return script(`secret`), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	res, err := p.Call(t.Context(), host.Call{Plugin: "sha256:mine"})
	if err != nil || string(res.Output.Body) != "it got no code" {
		t.Error(string(res.Output.Body), err)
	}
}

// Serve is as strict with a pool as a pool is with it.
func TestServeRefusesNonsense(t *testing.T) {
	for name, b := range map[string][]byte{
		"noise":         bytes.Repeat([]byte{0xfe}, 64),
		"no hello":      appendFrame(nil, frameCall, 1, nil),
		"not a hello":   appendFrame(nil, frameHello, 0, func(e *encoder) { e.text("x") }),
		"a cut frame":   appendFrame(nil, frameHello, 0, asJSON(hello{}))[:8],
		"a wrong frame": appendFrame(nil, frameResult, 0, nil),
	} {
		if err := Serve(t.Context(), struct {
			io.Reader
			io.WriteCloser
		}{bytes.NewReader(b), discard{}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := Serve(t.Context(), struct {
		io.Reader
		io.WriteCloser
	}{bytes.NewReader(nil), discard{}}); err != nil {
		t.Error("the pool left:", err)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }
