//go:build !wasip1

package skep

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/skep-dev/skep/abi"
)

// fakePiece is how long the pieces of a stream are, in characters.
const fakePiece = 8

// fakeStreams are the answers that a call reads in pieces, by their ids.
type fakeStreams struct {
	last uint32
	open map[uint32]*fakeStream
}

type fakeStream struct {
	pieces []ModelPiece // that were not read
	answer *ModelAnswer
}

// model answers the calls of models.
func (f *Fake) model(name string, in []byte) (abi.Status, []byte) {
	switch name {
	case abi.CallModel:
		return answerOf(called(in, f.generate))
	case abi.CallModelOpen:
		return answerOf(called(in, func(q ModelAsk) (abi.ModelStream, error) {
			a, err := f.generate(q)
			if err != nil {
				return abi.ModelStream{}, err
			}
			f.streams.last++
			if f.streams.open == nil {
				f.streams.open = map[uint32]*fakeStream{}
			}
			f.streams.open[f.streams.last] = &fakeStream{piecesOf(a), a}
			return abi.ModelStream{ID: f.streams.last}, nil
		}))
	case abi.CallModelRead:
		return answerOf(called(in, func(q abi.ModelStream) (abi.ModelPieces, error) {
			s := f.streams.open[q.ID]
			if s == nil {
				return abi.ModelPieces{}, &CallError{Kind: "unavailable", Message: "the stream of a model is not open"}
			}
			if len(s.pieces) == 0 {
				delete(f.streams.open, q.ID)
				return abi.ModelPieces{Pieces: []ModelPiece{}, Answer: s.answer}, nil
			}
			next := s.pieces[:1]
			s.pieces = s.pieces[1:]
			return abi.ModelPieces{Pieces: next}, nil
		}))
	case abi.CallModelClose:
		return answerOf(called(in, func(q abi.ModelStream) (struct{}, error) {
			delete(f.streams.open, q.ID)
			return struct{}{}, nil
		}))
	case abi.CallModelList:
		list := abi.Models{Models: []ModelInfo{}}
		for _, n := range f.Models {
			list.Models = append(list.Models, ModelInfo{Name: n})
		}
		return answerOf(list, nil)
	}
	return refuse("invalid", "the fake host has no call "+name)
}

func (f *Fake) generate(q ModelAsk) (*ModelAnswer, error) {
	q.Model = cmp.Or(q.Model, abi.DefaultModel)
	if f.Model == nil {
		return nil, &CallError{Kind: "denied", Message: "model " + q.Model + " was not granted: give Fake.Model what answers"}
	}
	f.ModelAsks = append(f.ModelAsks, q)
	a, err := f.Model(q)
	var told *CallError
	switch {
	case err != nil && !errors.As(err, &told):
		return nil, &CallError{Kind: "failed", Message: err.Error()}
	case err != nil:
		return nil, err
	case a == nil:
		return nil, &CallError{Kind: "failed", Message: "Fake.Model has returned no answer"}
	}
	answer := *a
	answer.Model, answer.Stop = cmp.Or(a.Model, q.Model), cmp.Or(a.Stop, "end")
	if a.Stop == "" && len(a.Content.Calls()) > 0 {
		answer.Stop = "tool"
	}
	return &answer, nil
}

// piecesOf cuts an answer into the pieces of a stream.
func piecesOf(a *ModelAnswer) (out []ModelPiece) {
	for i, p := range a.Content {
		text := p.Text
		if p.Type == "tool-call" {
			out = append(out, ModelPiece{Index: i, Type: p.Type, ID: p.ID, Name: p.Name})
			text = string(p.Args)
		}
		for rest := []rune(text); len(rest) > 0; {
			n := min(fakePiece, len(rest))
			out = append(out, ModelPiece{Index: i, Type: p.Type, Text: string(rest[:n])})
			rest = rest[n:]
		}
	}
	return out
}

// FakeAnswer is an answer of a model for Fake.Model: a text, and calls of tools.
func FakeAnswer(text string, calls ...ModelPart) *ModelAnswer {
	a := &ModelAnswer{ID: "answer"}
	if text != "" {
		a.Content = append(a.Content, ModelPart{Type: "text", Text: text})
	}
	a.Content = append(a.Content, calls...)
	return a
}

// FakeCall is a call of a tool in a FakeAnswer. args is a value with the JSON form of an object.
func FakeCall(id, tool string, args any) ModelPart {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err) // what a test has written has a JSON form
	}
	return ModelPart{Type: "tool-call", ID: id, Name: tool, Args: b}
}
