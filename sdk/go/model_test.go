//go:build !wasip1

package skep

import (
	"errors"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
)

func TestGenerate(t *testing.T) {
	host := &Fake{Model: func(q ModelAsk) (*ModelAnswer, error) {
		if strings.Contains(q.Messages[0].Content.Text(), "broken") {
			return nil, errors.New("no such luck")
		}
		last := q.Messages[len(q.Messages)-1].Content
		if last[0].Type == "tool-result" {
			return FakeAnswer("it is " + last[0].Result.Text()), nil
		}
		return FakeAnswer("let me see", FakeCall("c1", "weather", args{"city": "Oslo"})), nil
	}, Models: []string{"@main", "a/b"}}
	err := in(t, host, func() error {
		q := ModelAsk{Model: "@cheap", Messages: []ModelMessage{UserSays("weather in Oslo?")}, Tools: []ModelTool{{Name: "weather", Schema: abi.Raw(`{"type":"object"}`)}}}
		a, err := Generate(q)
		if err != nil {
			return err
		}
		calls := a.Content.Calls()
		if a.Stop != "tool" || a.Content.Text() != "let me see" || len(calls) != 1 || string(calls[0].Args) != `{"city":"Oslo"}` {
			t.Errorf("%+v", a)
		}
		q.Messages = append(q.Messages, ModelSaid(a), ModelMessage{Role: "user", Content: ModelParts{ToolResult(calls[0], "rain", false)}})
		if a, err = Generate(q); err != nil || a.Content.Text() != "it is rain" || a.Stop != "end" || a.Model != "@cheap" {
			t.Errorf("%+v, %v", a, err)
		}
		var e *CallError
		if _, err := GenerateText("broken"); !errors.As(err, &e) || e.Kind != "failed" || e.Message != "no such luck" {
			t.Errorf("%v", err)
		}
		list, err := ListModels()
		if err != nil || len(list) != 2 || list[1].Name != "a/b" {
			t.Errorf("%+v, %v", list, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(host.ModelAsks) != 3 || host.ModelAsks[2].Model != "@main" {
		t.Errorf("%+v", host.ModelAsks)
	}
	if m := host.ModelAsks[1].Messages; len(m) != 3 || m[1].Content[1].ID != "c1" || m[2].Content[0].ID != "c1" {
		t.Errorf("what goes back is %+v", m)
	}
}

func TestStreamModel(t *testing.T) {
	host := &Fake{Model: func(ModelAsk) (*ModelAnswer, error) {
		return FakeAnswer("a rather long answer", FakeCall("c", "f", args{"n": 1})), nil
	}}
	function := func() int32 {
		return Do(func(struct{}) (string, error) {
			s := StreamModel(ModelAsk{Messages: []ModelMessage{UserSays("tell")}})
			var text, call string
			n := 0
			for p, err := range s.Pieces() {
				if err != nil {
					return "", err
				}
				if n++; p.Type == "text" {
					text += p.Text
				} else {
					call += p.Name + p.Text
				}
			}
			if n < 4 || s.Answer() == nil || s.Answer().Content.Text() != text {
				t.Errorf("%d pieces, %+v", n, s.Answer())
			}
			return text + " " + call, nil
		})
	}
	var got string
	if err := host.Call(function, nil, &got); err != nil || got != `a rather long answer f{"n":1}` {
		t.Errorf("%q, %v", got, err)
	}
	if err := host.Replay(function); err != nil {
		t.Error(err)
	}
}

// Who leaves a stream gives it up; what is not open cannot be read.
func TestStreamModelLeft(t *testing.T) {
	host := &Fake{Model: func(ModelAsk) (*ModelAnswer, error) { return FakeAnswer("a rather long answer"), nil }}
	err := in(t, host, func() error {
		s := StreamModel(ModelAsk{Messages: []ModelMessage{UserSays("tell")}})
		for range s.Pieces() {
			break
		}
		if s.Answer() != nil {
			t.Error("an answer that was left is told")
		}
		if len(host.streams.open) != 0 {
			t.Error("the stream is open")
		}
		return ask(abi.CallModelRead, abi.ModelStream{ID: 1}, nil)
	})
	if err == nil || !strings.Contains(err.Error(), "not open") {
		t.Errorf("%v", err)
	}
	err = in(t, &Fake{}, func() error {
		for _, err := range StreamModel(ModelAsk{}).Pieces() {
			return err
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "was not granted") {
		t.Errorf("%v", err)
	}
}
