package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// answerEvents are what a log has of an answer: kind and data of each.
func answerEvents(pairs ...string) (out []agent.Event) {
	for i := 0; i < len(pairs); i += 2 {
		e := agent.Event{Seq: int64(i + 1), Run: "R", Time: time.Date(2030, 1, 1, 12, 0, i, 0, time.UTC).Local(), Data: json.RawMessage(pairs[i+1])}
		if err := e.Kind.UnmarshalText([]byte(pairs[i])); err != nil {
			panic(err)
		}
		out = append(out, e)
	}
	return out
}

func piece(attempt, index int, kind string, offset int, text string) string {
	b, _ := json.Marshal(map[string]any{"id": "a", "attempt": attempt, "index": index, "type": kind, "offset": offset, "text": text})
	return string(b)
}

// An answer that was begun by a process which died, with what a terminal would obey in it.
func told() []agent.Event {
	return answerEvents(
		"message.started", `{"id":"a","attempt":1,"model":"bee"}`,
		"message.delta", piece(1, 0, "text", 0, "wro"),
		"message.started", `{"id":"a","attempt":2,"model":"bee"}`,
		"message.delta", piece(2, 0, "reasoning", 0, "hm"),
		"message.delta", piece(2, 1, "text", 0, "one\ntw"),
		"message.delta", piece(2, 1, "text", 6, "o\u001b[2J"),
		"message.delta", `{"id":"a","attempt":2,"index":2,"type":"tool-call","offset":0,"name":"x_f","call":"c","text":"{\"a\":"}`,
		"message.delta", `{"id":"a","attempt":2,"index":2,"type":"tool-call","offset":5,"text":"1}"}`,
		"message.done", `{"id":"a","attempt":2,"model":"bee","stop":"tool","usage":{"input":3,"output":4}}`,
		"tool.called", `{"tool":"x.f","args":{"a":1},"call":1,"decision":{"verdict":"allow","effect":"read"}}`,
		"tool.returned", `{"tool":"x.f","call":1,"bytes":5,"duration":1000000}`,
		"tool.called", `{"tool":"x.g","args":{},"call":2,"decision":{"verdict":"deny","effect":"modify","reason":"no rule allows it"}}`,
		"emit", `{"n":1}`,
		"message.started", `{"id":"b","attempt":2,"model":"bee"}`,
		"message.delta", strings.Replace(piece(2, 0, "text", 0, "done"), `"a"`, `"b"`, 1),
		"message.done", `{"id":"b","attempt":2,"model":"bee","stop":"length"}`,
		"run.completed", `{"output":{"type":"text/plain","text":"done"}}`,
	)
}

func TestChatView(t *testing.T) {
	for _, thoughts := range []bool{false, true} {
		var out, beside bytes.Buffer
		v := chatView{cli: &cli{stdout: &out, stderr: &beside}, thoughts: thoughts}
		var fold client.ChatFold
		for _, e := range told() {
			for _, p := range fold.Add(e) {
				if err := v.part(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		if want := "wro\none\ntwo\\u001b[2J\ndone\n"; out.String() != want {
			t.Errorf("standard output is %q, want %q", out.String(), want)
		}
		want := "(the server was started again: the answer begins anew)\n"
		if thoughts {
			want += "hm\n"
		}
		want += "· x_f {\"a\":1}\n  x.f returned 5 bytes in 1ms\n  x.g is refused: no rule allows it\n·  {\"n\":1}\n(the answer is cut off: it is as long as it may be)\n"
		if beside.String() != want {
			t.Errorf("standard error is\n%s\nwant\n%s", beside.String(), want)
		}
	}
}

// What a run returns is printed when the model has not said it.
func TestChatViewOutput(t *testing.T) {
	for output, want := range map[string]string{
		`{"type":"text/plain","text":"other"}`:          "said\nother\n",
		`{"type":"text/plain","text":" said "}`:         "said\n",
		`{"type":"application/json","json":"other"}`:    "said\nother\n",
		`{"type":"application/json","json":null}`:       "said\n",
		`{"type":"application/json","json":{"deep":1}}`: "said\n",
	} {
		var out bytes.Buffer
		v := chatView{cli: &cli{stdout: &out, stderr: &out}}
		var fold client.ChatFold
		for _, e := range answerEvents("message.delta", piece(1, 0, "text", 0, "said"), "run.completed", fmt.Sprintf(`{"output":%s}`, output)) {
			for _, p := range fold.Add(e) {
				if err := v.part(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		if out.String() != want {
			t.Errorf("%s: printed %q, want %q", output, out.String(), want)
		}
	}
}

func TestAnswersInLogs(t *testing.T) {
	var out bytes.Buffer
	p := eventPrinter{w: &out}
	for _, e := range told()[:13] {
		if err := p.print(e); err != nil {
			t.Fatal(err)
		}
	}
	last := answerEvents("message.delta", strings.Replace(piece(2, 0, "text", 0, "not ended"), `"a"`, `"c"`, 1))[0]
	last.Seq = 100
	if err := errors.Join(p.print(last), p.flush()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.TrimSpace(strings.TrimSuffix(line[len("15:04:05.000  "):], "\n")))
		if second := line[len("15:04:"):len("15:04:05")]; strings.Contains(line, "  calls  ") && second != "12" {
			t.Errorf("the call is not told when it began: %s", line)
		}
	}
	want := []string{
		"says       wro",
		"again      the server was started again; what this answer said before is void",
		"thinks     hm",
		"says       one",
		`says       two\u001b[2J`,
		`calls      x_f {"a":1}`,
		"said       bee, stop: tool, 3 tokens in, 4 out",
	}
	if len(got) < len(want) || strings.Join(got[:len(want)], "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant first\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if end := got[len(got)-1]; end != "says       not ended" {
		t.Errorf("the last line is %q", end)
	}
}
