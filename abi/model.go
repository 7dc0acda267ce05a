package abi

import (
	"encoding/json"
	"strings"
)

// The calls of models. A model is asked for as @ROUTE, as PROVIDER/MODEL, or by a name that a route or a provider of the app knows. What it is
// asked is a ModelAsk, in a form that is no provider's: the gateway speaks theirs.
const (
	CallModel      = "model.generate" // ModelAsk -> ModelAnswer
	CallModelOpen  = "model.open"     // ModelAsk -> ModelStream: the answer follows in pieces
	CallModelRead  = "model.read"     // ModelStream -> ModelPieces: what has come since, at least one unless it has ended
	CallModelClose = "model.close"    // ModelStream -> empty; gives up what goes on, and is no error when nothing does
	CallModelList  = "model.list"     // empty -> Models: those that are granted
)

// DefaultModel is asked when nobody said which.
const DefaultModel = "@main"

// ModelAsk is what a model is asked.
type ModelAsk struct {
	Model       string          `json:"model,omitempty"` // DefaultModel unless given
	System      string          `json:"system,omitempty"`
	Messages    []ModelMessage  `json:"messages"`
	Tools       []ModelTool     `json:"tools,omitempty"`
	Choice      string          `json:"choice,omitempty"` // auto, none, any, or the name of a tool
	MaxTokens   int64           `json:"max_tokens,omitempty"`
	Temperature *float64        `json:"temperature,omitempty"`
	TopP        *float64        `json:"top_p,omitempty"`
	Stop        []string        `json:"stop,omitempty"`
	Reasoning   *ModelReasoning `json:"reasoning,omitempty"`
	Format      *ModelFormat    `json:"format,omitempty"`
	User        string          `json:"user,omitempty"`
	Cache       bool            `json:"cache,omitempty"` // mark the instructions and what came before for the provider's cache

	// Show is the id under which the host itself writes what the model says into the session's log, while it comes.
	Show string `json:"show,omitempty"`
}

// ModelMessage is a turn. Results of tools are parts of the user's.
type ModelMessage struct {
	Role    string     `json:"role"` // user or assistant
	Content ModelParts `json:"content"`
}

// ModelParts are the pieces of a message, or of the result of a tool. In JSON a text may stand for them.
type ModelParts []ModelPart

// UnmarshalJSON reads pieces, or a text as one piece.
func (p *ModelParts) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		*p = ModelParts{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(b, (*[]ModelPart)(p))
}

// ModelPart is a piece of a message.
type ModelPart struct {
	Type string `json:"type"` // text, reasoning, tool-call, tool-result, image, file or refusal
	Text string `json:"text,omitempty"`

	// Of a part in which the provider has left something for itself: sent back to it as it is.
	Opaque   string `json:"opaque,omitempty"`
	Redacted bool   `json:"redacted,omitempty"`
	Origin   Raw    `json:"origin,omitempty"`

	ID     string     `json:"id,omitempty"`   // of the call
	Name   string     `json:"name,omitempty"` // of the tool, or of the file
	Args   Raw        `json:"args,omitempty"`
	Result ModelParts `json:"result,omitempty"` // text, images and files
	Failed bool       `json:"failed,omitempty"`

	MIME string `json:"mime,omitempty"`
	Data []byte `json:"data,omitempty"` // base64 in JSON
	URL  string `json:"url,omitempty"`
	File string `json:"file,omitempty"` // path of a file of the session
}

// ModelTool is a tool that the model may ask to be called.
type ModelTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Schema      Raw    `json:"schema,omitempty"` // JSON Schema of its arguments
}

// ModelReasoning says how much a model shall think.
type ModelReasoning struct {
	Effort string `json:"effort,omitempty"` // none, minimal, low, medium, high, xhigh or max
	Budget int64  `json:"budget,omitempty"` // tokens
	Show   bool   `json:"show,omitempty"`   // its thoughts, or a summary of them, are part of the answer
}

// ModelFormat asks for JSON.
type ModelFormat struct {
	Name   string `json:"name,omitempty"`
	Schema Raw    `json:"schema,omitempty"`
}

// ModelAnswer is what a model said.
type ModelAnswer struct {
	ID      string     `json:"id"`
	Model   string     `json:"model"`
	Content ModelParts `json:"content"`
	Stop    string     `json:"stop"` // end, length, tool, filter, pause or unknown
	Usage   ModelUsage `json:"usage"`
}

// ModelUsage counts tokens. What was cached is part of Input and does not overlap, and Reasoning is part of Output.
type ModelUsage struct {
	Input      int64 `json:"input"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning,omitempty"`
}

// ModelStream names a stream that is open.
type ModelStream struct {
	ID uint32 `json:"id"`
}

// ModelPieces is what came of a stream.
type ModelPieces struct {
	Pieces []ModelPiece `json:"pieces"`
	Answer *ModelAnswer `json:"answer,omitempty"` // the whole of it, when the stream has ended; its id means nothing then
}

// ModelPiece is a piece of an answer. Index counts the parts of the answer.
type ModelPiece struct {
	Index int    `json:"index"`
	Type  string `json:"type"` // text, reasoning, tool-call or refusal
	Text  string `json:"text,omitempty"`
	ID    string `json:"id,omitempty"`   // with the first piece of a tool-call
	Name  string `json:"name,omitempty"` // likewise; the text of a call is of its arguments, as JSON
}

// Models answers model.list.
type Models struct {
	Models []ModelInfo `json:"models"`
}

// ModelInfo is a model, or a route.
type ModelInfo struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// The events by which listeners follow an answer that is shown. A MessageStarted with a greater attempt of the same id says that what was told of the
// attempt before is void: the process died in the middle, and the model was asked again.
const (
	EventMessageStarted = "message.started" // MessageStarted
	EventMessageDelta   = "message.delta"   // MessageDelta
	EventMessageDone    = "message.done"    // MessageDone
)

// MessageStarted tells that an answer begins.
type MessageStarted struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"` // the life of the run in which the model was asked: 1 unless the run was taken up again before
	Model   string `json:"model,omitempty"`
}

// MessageDelta tells the next text of a part. Offset counts the bytes of the part that were told before.
type MessageDelta struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	Index   int    `json:"index"`
	Type    string `json:"type"` // text, reasoning, tool-call or refusal
	Offset  int64  `json:"offset"`
	Text    string `json:"text,omitempty"`
	Name    string `json:"name,omitempty"` // of the tool, with the first of a tool-call
	Call    string `json:"call,omitempty"` // id of the call, likewise
}

// MessageDone tells that an answer has ended, or with Error that it failed.
type MessageDone struct {
	ID      string      `json:"id"`
	Attempt int         `json:"attempt"`
	Model   string      `json:"model,omitempty"`
	Stop    string      `json:"stop,omitempty"`
	Usage   *ModelUsage `json:"usage,omitempty"`
	Error   string      `json:"error,omitempty"`
}

// Text is all of the text in p, one part after the other.
func (p ModelParts) Text() string {
	var b strings.Builder
	for _, x := range p {
		if x.Type == "text" {
			b.WriteString(x.Text)
		}
	}
	return b.String()
}

// Calls are the calls of tools in p.
func (p ModelParts) Calls() (calls []ModelPart) {
	for _, x := range p {
		if x.Type == "tool-call" {
			calls = append(calls, x)
		}
	}
	return calls
}
