package skep

import (
	"iter"

	"github.com/skep-dev/skep/abi"
)

// The forms in which models are asked. What a model has answered can be put into the next request as it is, by ModelSaid; its Content has the methods Text
// and Calls.
type (
	ModelAsk       = abi.ModelAsk
	ModelMessage   = abi.ModelMessage
	ModelParts     = abi.ModelParts
	ModelPart      = abi.ModelPart
	ModelTool      = abi.ModelTool
	ModelReasoning = abi.ModelReasoning
	ModelFormat    = abi.ModelFormat
	ModelAnswer    = abi.ModelAnswer
	ModelUsage     = abi.ModelUsage
	ModelPiece     = abi.ModelPiece
	ModelInfo      = abi.ModelInfo
)

// UserSays is a message of the person that the model answers.
func UserSays(text string) ModelMessage {
	return ModelMessage{Role: "user", Content: ModelParts{{Type: "text", Text: text}}}
}

// ModelSaid is the message that an answer is in what follows.
func ModelSaid(a *ModelAnswer) ModelMessage {
	return ModelMessage{Role: "assistant", Content: a.Content}
}

// ToolResult is the part of a user's message that answers a call in a model's answer. failed says that text tells an error.
func ToolResult(call ModelPart, text string, failed bool) ModelPart {
	return ModelPart{Type: "tool-result", ID: call.ID, Name: call.Name, Result: ModelParts{{Type: "text", Text: text}}, Failed: failed}
}

// Generate asks a model, and returns its answer when it is whole. Without a model it asks the route @main. Which models an agent may ask is a grant. An
// error of the model's provider is a CallError of kind "unavailable" or "failed"; one of a limit of kind "exhausted".
func Generate(ask ModelAsk) (*ModelAnswer, error) {
	var a ModelAnswer
	if err := askModel(abi.CallModel, ask, &a); err != nil {
		return nil, err
	}
	return &a, nil
}

// GenerateText asks the model of the route @main one thing, and returns the text of its answer.
func GenerateText(text string) (string, error) {
	a, err := Generate(ModelAsk{Messages: []ModelMessage{UserSays(text)}})
	if err != nil {
		return "", err
	}
	return a.Content.Text(), nil
}

// ModelStream is an answer that comes in pieces.
type ModelStream struct {
	ask    ModelAsk
	answer *ModelAnswer
}

// StreamModel asks a model whose answer is read while it comes. It is asked when Pieces is ranged over, which ends at the end of the answer; to leave the
// loop gives the rest up.
func StreamModel(ask ModelAsk) *ModelStream { return &ModelStream{ask: ask} }

// Answer returns the whole answer, once Pieces has come to its end, else nil.
func (s *ModelStream) Answer() *ModelAnswer { return s.answer }

// Pieces returns what the model says, piece by piece. An error is the last.
func (s *ModelStream) Pieces() iter.Seq2[ModelPiece, error] {
	return func(yield func(ModelPiece, error) bool) {
		s.answer = nil
		var open abi.ModelStream
		if err := askModel(abi.CallModelOpen, s.ask, &open); err != nil {
			yield(ModelPiece{}, err)
			return
		}
		for {
			var got abi.ModelPieces
			if err := ask(abi.CallModelRead, open, &got); err != nil {
				yield(ModelPiece{}, err)
				return
			}
			s.answer = got.Answer
			for _, p := range got.Pieces {
				if yield(p, nil) {
					continue
				}
				if got.Answer == nil {
					_ = ask(abi.CallModelClose, open, nil) // what it says is of no use to anybody
				}
				return
			}
			if got.Answer != nil {
				return
			}
		}
	}
}

// ListModels lists the routes and models that the agent may ask.
func ListModels() ([]ModelInfo, error) {
	var list abi.Models
	err := ask(abi.CallModelList, struct{}{}, &list)
	return list.Models, err
}

// askModel is ask of what has no messages missing.
func askModel(name string, q ModelAsk, out any) error {
	if q.Messages == nil {
		q.Messages = []ModelMessage{}
	}
	return ask(name, q, out)
}
