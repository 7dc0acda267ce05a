package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/skep-dev/skep/agent"
)

// ChatKind says what a ChatPart tells.
type ChatKind uint8

const (
	UnknownChat  ChatKind = iota
	ChatMessage           // somebody says something to the agent: Role, Content
	ChatStart             // an answer begins: ID, Model
	ChatRestart           // it is told anew, since the server died in the middle: forget what was told under ID
	ChatText              // the next text of an answer: ID, Index, Text
	ChatThought           // of its reasoning, likewise; "reasoning" in JSON
	ChatRefusal           // the model's words for not answering, likewise
	ChatCall              // the model writes a call: Name and Call with the first piece, Text is of the arguments, as JSON
	ChatAnswer            // the answer has ended: ID, Model, Stop, Usage; Error when it failed
	ChatTool              // a call of a tool was judged: Tool
	ChatReturned          // it has ended: Tool
	ChatApproval          // a person is asked, and the run waits: Approval
	ChatAnswered          // somebody has answered: Answered
	ChatEvent             // an event of the agent's own: Name, Data
	ChatDone              // the run has ended: Output, or Error and Failed
)

var chatNames = [...]string{
	"unknown", "message", "start", "restart", "text", "reasoning", "refusal", "call", "answer", "tool", "returned", "approval", "answered", "event", "done",
}

func (k ChatKind) String() string {
	if int(k) < len(chatNames) {
		return chatNames[k]
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

func (k ChatKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ChatPart is what happens next in a conversation. Fields that its kind does not name are zero.
type ChatPart struct {
	Kind ChatKind    `json:"type"`
	Seq  int64       `json:"seq"` // of the event that told it
	Run  agent.RunID `json:"run,omitempty"`

	ID    string             `json:"id,omitempty"` // of the answer
	Index int                `json:"index,omitempty"`
	Text  string             `json:"text,omitempty"`
	Name  string             `json:"name,omitempty"`
	Call  string             `json:"call,omitempty"`
	Model string             `json:"model,omitempty"`
	Stop  string             `json:"stop,omitempty"`
	Usage *agent.ModelTokens `json:"usage,omitempty"`

	Role    string          `json:"role,omitempty"`
	Content json.RawMessage `json:"content,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`

	Tool     *agent.ToolUse          `json:"tool,omitempty"`
	Approval *agent.Approval         `json:"approval,omitempty"`
	Answered *agent.ApprovalAnswered `json:"answered,omitempty"`

	Output *agent.Payload  `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	Failed *agent.RunError `json:"failed,omitempty"` // with ChatDone, when the run did not complete
}

// ChatFold makes what happens in a conversation of the events of its log. Events come in the order of their numbers; it takes each once, and text
// once, even when events tell it twice. The zero value is ready.
type ChatFold struct {
	seen    int64
	answers map[string]*chatAnswer
}

// chatAnswer is how much of an answer was told.
type chatAnswer struct {
	attempt int
	told    map[int]int64 // bytes of each part
}

// chatData is the data of the three events of answers.
type chatData struct {
	ID      string             `json:"id"`
	Attempt int                `json:"attempt"`
	Index   int                `json:"index"`
	Type    string             `json:"type"`
	Offset  int64              `json:"offset"`
	Text    string             `json:"text"`
	Name    string             `json:"name"`
	Call    string             `json:"call"`
	Model   string             `json:"model"`
	Stop    string             `json:"stop"`
	Usage   *agent.ModelTokens `json:"usage"`
	Error   string             `json:"error"`
}

// Add returns what an event tells: mostly one thing or nothing.
func (f *ChatFold) Add(e agent.Event) []ChatPart {
	if e.Seq > 0 {
		if e.Seq <= f.seen {
			return nil
		}
		f.seen = e.Seq
	}
	p := ChatPart{Seq: e.Seq, Run: e.Run}
	switch e.Kind {
	case agent.EventMessageStarted, agent.EventMessageDelta, agent.EventMessageDone:
		var d chatData
		if json.Unmarshal(e.Data, &d) != nil {
			return nil
		}
		return f.answer(p, e.Kind, d)
	case agent.EventMessage:
		var m agent.Message
		if json.Unmarshal(e.Data, &m) != nil {
			return nil
		}
		p.Kind, p.Role, p.Content = ChatMessage, m.Role, m.Content
	case agent.EventToolCalled, agent.EventToolReturned:
		p.Kind, p.Tool = ChatTool, new(agent.ToolUse)
		if e.Kind == agent.EventToolReturned {
			p.Kind = ChatReturned
		}
		if json.Unmarshal(e.Data, p.Tool) != nil {
			return nil
		}
	case agent.EventApprovalRequested:
		p.Kind, p.Approval = ChatApproval, new(agent.Approval)
		if json.Unmarshal(e.Data, p.Approval) != nil {
			return nil
		}
	case agent.EventApprovalAnswered:
		p.Kind, p.Answered = ChatAnswered, new(agent.ApprovalAnswered)
		if json.Unmarshal(e.Data, p.Answered) != nil {
			return nil
		}
	case agent.EventEmit:
		p.Kind, p.Name, p.Data = ChatEvent, e.Name, e.Data
	case agent.EventRunCompleted:
		var end struct {
			Output agent.Payload `json:"output"`
		}
		_ = json.Unmarshal(e.Data, &end)
		p.Kind, p.Output = ChatDone, &end.Output
	case agent.EventRunFailed, agent.EventRunCancelled:
		p.Kind, p.Failed = ChatDone, new(agent.RunError)
		_ = json.Unmarshal(e.Data, p.Failed)
		p.Error = p.Failed.Msg
	default:
		return nil
	}
	return []ChatPart{p}
}

// answer folds an event of an answer.
func (f *ChatFold) answer(p ChatPart, kind agent.EventKind, d chatData) []ChatPart {
	p.ID, p.Model = d.ID, d.Model
	var out []ChatPart
	a := f.answers[d.ID]
	switch {
	case a != nil && d.Attempt < a.attempt:
		return nil // of an attempt that is void
	case a == nil || d.Attempt > a.attempt:
		first := p
		first.Kind = ChatStart
		if a != nil {
			first.Kind = ChatRestart
		}
		out = append(out, first)
		a = &chatAnswer{d.Attempt, map[int]int64{}}
		if f.answers == nil {
			f.answers = map[string]*chatAnswer{}
		}
		f.answers[d.ID] = a
	}
	switch kind {
	case agent.EventMessageDelta:
		told := a.told[d.Index]
		end := d.Offset + int64(len(d.Text))
		if d.Offset < told {
			if end <= told {
				return out
			}
			d.Text, d.Name, d.Call = d.Text[told-d.Offset:], "", ""
		}
		a.told[d.Index] = end
		p.Kind = map[string]ChatKind{"text": ChatText, "reasoning": ChatThought, "refusal": ChatRefusal, "tool-call": ChatCall}[d.Type]
		if p.Kind == UnknownChat {
			return out
		}
		p.Index, p.Text, p.Name, p.Call = d.Index, d.Text, d.Name, d.Call
		out = append(out, p)
	case agent.EventMessageDone:
		p.Kind, p.Stop, p.Usage, p.Error = ChatAnswer, d.Stop, d.Usage, d.Error
		out = append(out, p)
	}
	return out
}

// Chat returns what happens in a conversation after the event numbered after: in all of it with SessionLog, in the answer to one message with RunLog of
// the run that Send has returned, up to its end. follow is as for Events. A connection that breaks loses and doubles nothing.
func (c *Client) Chat(ctx context.Context, l Log, after int64, follow bool) iter.Seq2[ChatPart, error] {
	return func(yield func(ChatPart, error) bool) {
		var fold ChatFold
		for e, err := range c.Events(ctx, l, after, follow) {
			if err != nil {
				yield(ChatPart{}, err)
				return
			}
			for _, p := range fold.Add(e) {
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}
