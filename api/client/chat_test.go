package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// told is an event whose data is JSON.
func told(seq int64, kind agent.EventKind, data string) agent.Event {
	return agent.Event{Seq: seq, Kind: kind, Run: "R", Data: json.RawMessage(data)}
}

// shown writes parts down, one word for each.
func shown(parts []ChatPart) string {
	var out []string
	for _, p := range parts {
		word := p.Kind.String()
		if text := p.Name + p.Text + p.Stop + p.Error; text != "" {
			word += "=" + text
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

func TestChatFold(t *testing.T) {
	const (
		started = agent.EventMessageStarted
		delta   = agent.EventMessageDelta
		done    = agent.EventMessageDone
	)
	for name, c := range map[string]struct {
		events []agent.Event
		want   string
	}{
		"an answer": {[]agent.Event{
			told(1, agent.EventMessage, `{"role":"user","content":"hi"}`),
			told(2, started, `{"id":"a","attempt":1,"model":"m"}`),
			told(3, delta, `{"id":"a","attempt":1,"index":0,"type":"reasoning","offset":0,"text":"hm"}`),
			told(4, delta, `{"id":"a","attempt":1,"index":1,"type":"text","offset":0,"text":"Hé"}`),
			told(5, delta, `{"id":"a","attempt":1,"index":1,"type":"text","offset":3,"text":"llo"}`),
			told(6, delta, `{"id":"a","attempt":1,"index":2,"type":"tool-call","offset":0,"name":"f","call":"c1","text":"{"}`),
			told(7, done, `{"id":"a","attempt":1,"stop":"tool","usage":{"input":3,"output":4}}`),
			told(8, agent.EventToolCalled, `{"tool":"x.f"}`),
			told(9, agent.EventToolReturned, `{"tool":"x.f"}`),
			told(10, agent.EventApprovalRequested, `{"id":"R-1"}`),
			told(11, agent.EventApprovalAnswered, `{"id":"R-1","allow":true}`),
			told(12, agent.EventRunCompleted, `{"output":{"type":"application/json","json":"Hi"}}`),
		}, "message start reasoning=hm text=Hé text=llo call=f{ answer=tool tool returned approval answered done"},
		"events that come twice": {[]agent.Event{
			told(2, delta, `{"id":"a","attempt":1,"type":"text","offset":0,"text":"one"}`),
			told(2, delta, `{"id":"a","attempt":1,"type":"text","offset":0,"text":"one"}`),
			told(1, started, `{"id":"a","attempt":1}`),
		}, "start text=one"},
		"text that comes twice": {[]agent.Event{
			told(1, started, `{"id":"a","attempt":1}`),
			told(2, delta, `{"id":"a","attempt":1,"type":"text","offset":0,"text":"one"}`),
			told(3, delta, `{"id":"a","attempt":1,"type":"text","offset":1,"text":"ne two"}`),
			told(4, delta, `{"id":"a","attempt":1,"type":"text","offset":2,"text":"e"}`),
		}, "start text=one text= two"},
		"a process that died": {[]agent.Event{
			told(1, started, `{"id":"a","attempt":1}`),
			told(2, delta, `{"id":"a","attempt":1,"type":"text","offset":0,"text":"wrong"}`),
			told(3, started, `{"id":"a","attempt":2}`),
			told(4, delta, `{"id":"a","attempt":1,"type":"text","offset":5,"text":"er"}`),
			told(5, delta, `{"id":"a","attempt":2,"type":"text","offset":0,"text":"right"}`),
			told(6, done, `{"id":"a","attempt":2,"stop":"end"}`),
		}, "start text=wrong restart text=right answer=end"},
		"from the middle": {[]agent.Event{
			told(9, delta, `{"id":"a","attempt":3,"type":"text","offset":7,"text":"rest"}`),
			told(10, done, `{"id":"a","attempt":3,"error":"broke"}`),
			told(11, agent.EventRunFailed, `{"kind":"failed","message":"no"}`),
		}, "start text=rest answer=broke done=no"},
		"what is not understood": {[]agent.Event{
			told(1, delta, `{"id":"a","attempt":1,"type":"smell","text":"x"}`), told(2, delta, `[]`), told(3, agent.EventLog, `{}`),
		}, "start"},
	} {
		t.Run(name, func(t *testing.T) {
			var fold ChatFold
			var got []ChatPart
			for _, e := range c.events {
				got = append(got, fold.Add(e)...)
			}
			if s := shown(got); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

// A cut in the middle of an answer loses and doubles nothing.
func TestChatResumes(t *testing.T) {
	write := func(w http.ResponseWriter, e agent.Event) {
		b, _ := json.Marshal(e)
		fmt.Fprintf(w, "%s\n", b)
	}
	letter := func(i int64) agent.Event {
		return told(i, agent.EventMessageDelta, fmt.Sprintf(`{"id":"a","attempt":1,"type":"text","offset":%d,"text":"%c"}`, i-1, 'a'+i-1))
	}
	c, n := script{
		func(w http.ResponseWriter, _ int64) {
			write(w, letter(1))
			write(w, letter(2))
			fmt.Fprint(w, `{"seq":3,"kind":"message.del`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		func(w http.ResponseWriter, after int64) {
			write(w, letter(after)) // a server that says one again
			write(w, letter(after+1))
			write(w, told(after+2, agent.EventRunCompleted, `{"output":{"type":"application/json","json":null}}`))
		},
	}.serve(t)
	var got []ChatPart
	for p, err := range c.Chat(t.Context(), RunLog("R"), 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
	if s := shown(got); s != "start text=a text=b text=c done" {
		t.Errorf("got %s", s)
	}
	if n.Load() != 2 {
		t.Errorf("%d connections", n.Load())
	}
}
