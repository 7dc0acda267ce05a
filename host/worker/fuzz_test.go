package worker

import (
	"bufio"
	"bytes"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// decoded is a message that can be written again.
type decoded interface{ encode(*encoder) }

type call struct {
	*callMessage
	kind kind
}

func (c call) encode(e *encoder) { c.callMessage.encode(e, c.kind) }

type progress host.Progress

func (p progress) encode(e *encoder) { encodeProgress(e, host.Progress(p)) }

type (
	drop uint64
	load string
)

func (d drop) encode(e *encoder) { e.uint(uint64(d)) }
func (l load) encode(e *encoder) { e.text(string(l)) }

// decode reads the body of a frame of any kind that is not JSON.
func decode(k kind, b []byte) (decoded, error) {
	switch k {
	case frameCall, frameFetch, frameEval, framePrepare, frameBundle:
		m, err := decodeCall(k, b)
		return call{m, k}, err
	case frameAnswer:
		return decodeAnswer(b)
	case frameSource:
		return decodeSource(b)
	case frameResult:
		return decodeResult(b)
	case frameProgress:
		p, err := decodeProgress(b)
		return progress(p), err
	case frameLine, frameAsk:
		return decodeAsk(b)
	case frameDrop:
		n, err := decodeDrop(b)
		return drop(n), err
	case frameLoad:
		d, err := decodeLoad(b)
		return load(d), err
	case frameLoaded:
		return decodeLoaded(b)
	default:
		return nil, errNonsense
	}
}

func samples() map[kind]decoded {
	src := agent.Source{Kind: agent.Script, Main: "a.ts", Files: map[string][]byte{"a.ts": []byte("x"), "b": nil}}
	c := &callMessage{
		call: host.Call{
			Plugin: "sha256:x", Tenant: "t", Agent: "a", Weight: 3, Function: "f", Input: agent.Text("in"), Config: map[string]string{"k": "v", "l": ""},
			Limits: agent.DefaultLimits(), Depth: 3,
		},
		calls: true, request: host.Request{Method: "GET", URL: "http://a/", Header: [][2]string{{"a", "b"}}, Body: []byte("b")}, source: src,
	}
	e := &agent.Error{
		Kind: agent.Exhausted, Msg: "m", Hint: "h", After: 4, Limit: agent.MaxLimit, Pos: agent.Pos{File: "f", Line: 1, Column: 2}, Stack: "s",
	}
	waits := waitingMessage{
		now: true, waiting: true, rest: true, nudge: true, resumed: true, export: true, resume: []byte("snapshot"), image: []byte("image"),
		deliver: []host.Delivery{{ID: 2, Name: "agent", Out: []byte("o"), Sum: [32]byte{1}}, {Err: e}},
	}
	pending := host.Pending{Calls: []host.PendingCall{{ID: 3, Name: "agent", Input: []byte("i")}}, Alarm: time.Unix(5, 6)}
	return map[kind]decoded{
		frameCall: call{&callMessage{call: c.call, calls: true, waiting: waits}, frameCall}, frameFetch: call{&callMessage{call: c.call, request: c.request}, frameFetch},
		frameEval: call{&callMessage{call: c.call, source: src}, frameEval}, framePrepare: call{&callMessage{source: src}, framePrepare},
		frameBundle: call{&callMessage{source: src}, frameBundle},
		frameAnswer: &answerMessage{err: e, out: []byte("o")}, frameSource: &sourceMessage{source: src},
		frameResult: &resultMessage{
			err: e, usage: agent.Usage{CPU: 1, Wall: 2, Fuel: 3, Memory: 4, HostCalls: 5, In: 6, Out: 7, Log: 8}, output: agent.Text("o"),
			response: host.Response{Status: 200, Header: [][2]string{{"c", "d"}}, Body: []byte("b")}, prepared: host.Prepared{Exports: []string{"f"}, Fetch: true},
			suspended: &host.Suspension{Snapshot: []byte("s"), Pending: pending, Image: "sha256:x", Exported: []byte("e")},
		},
		frameProgress: progress{Stage: "compile", Done: 1, Total: 2}, frameLine: &askMessage{name: "log", in: []byte("l")},
		frameAsk: &askMessage{ask: 1, what: askRest, number: 7, name: "http", in: []byte("i")}, frameDrop: drop(9), frameLoad: load("sha256:y"),
		frameLoaded: &loadedMessage{agent: "a", usage: agent.Usage{CPU: 1, Wall: 2, Memory: 3, In: 4}, err: e},
	}
}

func TestMessagesComeBack(t *testing.T) {
	for k, m := range samples() {
		b := appendFrame(nil, k, 5, m.encode)
		f, err := readFrame(bufio.NewReader(bytes.NewReader(b)))
		if err != nil || f.kind != k || f.id != 5 {
			t.Fatal(f, err)
		}
		got, err := decode(k, f.body)
		if err != nil {
			t.Fatalf("kind %d: %v", k, err)
		}
		if again := appendFrame(nil, k, 5, got.encode); !bytes.Equal(again, b) {
			t.Errorf("kind %d: %q came back as %q", k, b, again)
		}
		for n := range f.body {
			if _, err := decode(k, f.body[:n]); err == nil {
				t.Errorf("kind %d: %d of %d bytes are a message", k, n, len(f.body))
			}
		}
	}
}

// Whatever comes: no panic, no more memory than the bytes that came can account for, and what is read can be written and
// read again.
func FuzzFrames(f *testing.F) {
	for k, m := range samples() {
		f.Add(appendFrame(nil, k, 1, m.encode))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			fr, err := readFrame(r)
			if err != nil {
				return
			}
			m, err := decode(fr.kind, fr.body)
			if err != nil {
				continue
			}
			once := appendFrame(nil, fr.kind, fr.id, m.encode)
			again, err := decode(fr.kind, once[headerSize:])
			if err != nil {
				t.Fatalf("kind %d: what was read cannot be read again: %v", fr.kind, err)
			}
			if twice := appendFrame(nil, fr.kind, fr.id, again.encode); !bytes.Equal(once, twice) {
				t.Fatalf("kind %d: %q and %q", fr.kind, once, twice)
			}
		}
	})
}
