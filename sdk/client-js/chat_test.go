package clientjs

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
)

// talker is a model that says again what it is told, a word at a time. The word "wait" waits for a sign from the test, and "fail" fails.
type talker struct {
	mu    sync.Mutex
	waits int // how often it has waited
	gate  chan struct{}
}

func (m *talker) Models(context.Context, gateway.Caller) ([]gateway.ModelInfo, error) {
	return nil, nil
}

func (m *talker) Ask(ctx context.Context, _ gateway.Caller, r *wire.Request, each func(wire.Event) error) (*wire.Answer, error) {
	said := ""
	for _, p := range r.Messages[len(r.Messages)-1].Parts {
		said += p.Text
	}
	a := &wire.Answer{ID: "1", Model: "talker", Stop: wire.StopEnd, Parts: []wire.Part{{Kind: wire.TextPart}}}
	tell := func(e wire.Event) error {
		if each == nil {
			return nil
		}
		return each(e)
	}
	if err := tell(wire.Event{Kind: wire.Begin, Model: "talker"}); err != nil {
		return nil, err
	}
	if err := tell(wire.Event{Kind: wire.PartBegin, Part: wire.Part{Kind: wire.TextPart}}); err != nil {
		return nil, err
	}
	for word := range strings.FieldsSeq(said) {
		switch word {
		case "fail":
			return nil, agent.Errorf(agent.Unavailable, "the talker has lost its voice")
		case "wait":
			m.mu.Lock()
			m.waits++
			m.mu.Unlock()
			select {
			case <-m.gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		a.Parts[0].Text += word + " é "
		if err := tell(wire.Event{Kind: wire.PartDelta, Text: word + " é "}); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// control lets a test in Node open the gate, and tell how often the model has come to it.
func (m *talker) control(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/go", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case m.gate <- struct{}{}:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/waits", func(w http.ResponseWriter, _ *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		fmt.Fprint(w, m.waits)
	})
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + ln.Addr().String()
}

func TestChat(t *testing.T) {
	m := &talker{gate: make(chan struct{})}
	s := startServer(t, server{model: m})
	code, err := os.ReadFile(filepath.Join("testdata", "chat.ts"))
	if err != nil {
		t.Fatal(err)
	}
	c := client.New("http://"+s.addr, s.token, nil)
	if _, err := c.PutPlugin(t.Context(), client.Upload{Name: "chat", Version: "1", Filename: "chat.ts", Body: code}, nil); err != nil {
		t.Fatal(err)
	}
	grants := agent.Grants{Models: []agent.NamedGrant{{Name: "@main"}}}
	if _, err := c.CreateAgent(t.Context(), client.NewAgent{Name: "assistant", Plugin: "chat", Grants: grants}); err != nil {
		t.Fatal(err)
	}
	s.node("testdata/chat.test.mjs", "SKEP_TALKER="+m.control(t))
}
