package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/internal/visible"
)

// chatView prints what happens in a conversation: what the agent says to standard output, as it comes, and what it does beside to standard error.
type chatView struct {
	*cli
	thoughts bool // are shown, too

	on     io.Writer // where a line is not ended yet, or nil
	part0  chatPlace // of the text that was printed last
	said   bool      // the run has said something
	last   chatSaid  // the newest answer
	calls  []*chatCall
	failed string // what the answer failed with that ended last
}

// chatPlace is a part of an answer.
type chatPlace struct {
	kind  client.ChatKind
	id    string
	index int
}

// chatSaid is the text of an answer.
type chatSaid struct{ id, text string }

// chatCall is a call that a model has written.
type chatCall struct {
	chatPlace
	name, args string
	shown      bool
}

// line writes one JSON object.
func (v *chatView) line(of any) error {
	out := json.NewEncoder(v.stdout)
	out.SetEscapeHTML(false)
	return out.Encode(of)
}

// end ends the line that was begun.
func (v *chatView) end() {
	if v.on != nil {
		fmt.Fprintln(v.on)
		v.on = nil
	}
	v.part0 = chatPlace{}
}

// note writes a line of what happens beside.
func (v *chatView) note(format string, args ...any) {
	v.end()
	v.notef("%s\n", strings.ReplaceAll(plain(fmt.Sprintf(format, args...)), "\n", "\n  "))
}

// text writes what comes next of a part.
func (v *chatView) text(w io.Writer, p client.ChatPart) error {
	if at := (chatPlace{p.Kind, p.ID, p.Index}); at != v.part0 {
		v.end()
		v.part0 = at
	}
	if p.Text == "" {
		return nil
	}
	if v.on = w; strings.HasSuffix(p.Text, "\n") {
		v.on = nil
	}
	_, err := io.WriteString(w, plain(p.Text))
	return err
}

func (v *chatView) part(p client.ChatPart) error {
	if v.json {
		return v.line(p)
	}
	switch p.Kind {
	case client.ChatText, client.ChatRefusal:
		if v.said = true; v.last.id != p.ID {
			v.last = chatSaid{id: p.ID}
		}
		v.last.text += p.Text
		return v.text(v.stdout, p)
	case client.ChatThought:
		if v.thoughts {
			return v.text(v.stderr, p)
		}
	case client.ChatStart:
		if v.failed != "" {
			v.note("the model failed: %s; it is asked again", v.failed)
			v.failed = ""
		}
	case client.ChatRestart:
		v.calls, v.last = nil, chatSaid{}
		v.note("(the server was started again: the answer begins anew)")
	case client.ChatCall:
		v.call(p)
	case client.ChatAnswer:
		v.answer(p)
	case client.ChatTool, client.ChatReturned:
		v.tool(p)
	case client.ChatAnswered:
		v.note("%s", toolText(agent.Event{Kind: agent.EventApprovalAnswered, Data: encoded(p.Answered)}))
	case client.ChatEvent:
		switch p.Name {
		case "chat.checkpoint":
			v.note("· what was said earlier was summed up")
		case "chat.error": // it is what the run returns
		default:
			v.note("· %s %s", p.Name, phrase.Clip(compact(p.Data), 200))
		}
	case client.ChatDone:
		return v.done(p)
	}
	return nil
}

func encoded(v any) json.RawMessage {
	b, _ := json.Marshal(v)
	return b
}

// call gathers a call that the model writes.
func (v *chatView) call(p client.ChatPart) {
	at := chatPlace{p.Kind, p.ID, p.Index}
	for _, c := range v.calls {
		if c.chatPlace == at {
			c.name, c.args = cmp.Or(c.name, p.Name), c.args+p.Text
			return
		}
	}
	v.calls = append(v.calls, &chatCall{chatPlace: at, name: p.Name, args: p.Text})
}

// answer tells the calls of an answer that has ended.
func (v *chatView) answer(p client.ChatPart) {
	if v.end(); p.Error != "" {
		v.failed, v.calls = p.Error, nil
		return
	}
	for _, c := range v.calls {
		if !c.shown {
			c.shown = true
			v.note("· %s", strings.TrimSpace(c.name+" "+phrase.Clip(c.args, 200)))
		}
	}
	if p.Stop == "length" {
		v.note("(the answer is cut off: it is as long as it may be)")
	}
}

// tool tells what became of a call of a tool. One that the model itself has written is told once.
func (v *chatView) tool(p client.ChatPart) {
	u := p.Tool
	switch {
	case p.Kind == client.ChatReturned && u.Error != "":
		v.note("  %s failed in %s: %s", u.Tool, howLong(u.Duration), u.Error)
		return
	case p.Kind == client.ChatReturned:
		v.note("  %s returned %d bytes in %s", u.Tool, u.Bytes, howLong(u.Duration))
		return
	case u.Decision != nil && u.Decision.Verdict == agent.Deny:
		v.note("  %s is refused: %s", u.Tool, u.Decision.Reason)
		return
	}
	for i, c := range v.calls {
		if toolLetters(c.name) == toolLetters(u.Tool) {
			v.calls = append(v.calls[:i:i], v.calls[i+1:]...)
			return
		}
	}
	v.note("· %s %s", u.Tool, phrase.Clip(compact(u.Args), 200))
}

// toolLetters makes one of the two ways in which a tool is named: models know none with dots.
func toolLetters(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, name)
}

// done tells how the run ended. What it returns is told when that is not what the model has said last: not every agent asks a model.
func (v *chatView) done(p client.ChatPart) error {
	v.end()
	said, last := v.said, v.last.text
	v.said, v.last, v.calls, v.failed = false, chatSaid{}, nil, ""
	if p.Output == nil || len(p.Output.Body) == 0 {
		return nil
	}
	out := *p.Output
	var text *string
	if out.IsJSON() && json.Unmarshal(out.Body, &text) == nil {
		if text == nil { // null
			return nil
		}
		out = agent.Payload{Type: "text/plain; charset=utf-8", Body: []byte(*text)}
	}
	if !out.IsText() && said || strings.TrimSpace(string(out.Body)) == strings.TrimSpace(last) {
		return nil
	}
	if out.IsText() {
		out.Body = []byte(plain(string(out.Body)))
	}
	return v.printBytes(out)
}

// askedLines says what a person is asked. They decide by it, so it is shown out of the bytes that would be sent.
func askedLines(a agent.Approval) string {
	if a.Asks != nil {
		text := visible.Text(a.Asks.Server) + " asks: " + visible.Block(a.Asks.Message)
		if a.Asks.URL != "" {
			text += "\nopen yourself, if you know it: " + visible.Text(a.Asks.URL)
		}
		return text
	}
	var lines []string
	if a.Title != "" {
		lines = append(lines, visible.Text(a.Title))
	}
	for _, call := range a.Calls {
		_, warning := shownArgs(a.ID, call)
		args := visible.Line(call.Args, 600)
		if warning == "" && strings.HasSuffix(args, "...") {
			warning = "this may be only the beginning: [d] shows all"
		}
		word := "wants your approval"
		if call.Undo {
			word = "undoes it, if a later call fails"
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s\n  %s", visible.Text(call.Tool), word, visible.Text(call.Decision.Reason), args))
		if warning != "" {
			lines = append(lines, "  "+warning)
		}
	}
	return strings.Join(lines, "\n")
}
