// Command boxagent is the command-line agent of the boxes in which the crash harness kills: it speaks the Agent Client Protocol, version 1, on standard input and
// output, and does what the plan says that it is prompted with. All that it says and does in a turn is numbered without a gap, from 0, in one row: pieces of
// text as "[NAME.NUMBER]", calls of tools by their ids "NAME.NUMBER". NAME is one of its own for each turn, so that a turn that is begun twice is seen.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// plan is what a prompt's text is, in JSON.
type plan struct {
	Name  string `json:"name"` // begins the turn's
	Steps []step `json:"steps"`
}

// step is either some pieces of text, or a tool: one that edits the file Edit, for which it asks, or one that does nothing and asks nobody.
type step struct {
	Say   int    `json:"say"`
	Edit  string `json:"edit"`
	Look  bool   `json:"look"`
	Pause int    `json:"pause"` // milliseconds after each piece, and in a tool
}

// message is any of JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// speaker is the agent. Its turns run one at a time, beside the reading.
type speaker struct {
	mu     sync.Mutex // of what follows, and of standard output
	out    *json.Encoder
	dir    string
	cancel chan struct{} // closed when the turn is to end
	asked  map[string]chan json.RawMessage
	asks   int
}

const session = "box"

func main() {
	s := &speaker{out: json.NewEncoder(os.Stdout), asked: map[string]chan json.RawMessage{}}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		var m message
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			fmt.Fprintln(os.Stderr, "boxagent: not a message:", err)
			os.Exit(1)
		}
		s.hear(&m)
	}
}

func (s *speaker) hear(m *message) {
	switch m.Method {
	case "initialize":
		s.reply(m.ID, map[string]any{"protocolVersion": 1, "agentInfo": map[string]any{"name": "boxagent", "version": "1"}, "agentCapabilities": map[string]any{
			"sessionCapabilities": map[string]any{"resume": map[string]any{}},
		}})
	case "session/new", "session/resume":
		var p struct {
			Dir string `json:"cwd"`
		}
		_ = json.Unmarshal(m.Params, &p)
		s.dir = p.Dir
		s.reply(m.ID, map[string]any{"sessionId": session})
	case "session/prompt":
		cancel := make(chan struct{})
		s.mu.Lock()
		s.cancel = cancel
		s.mu.Unlock()
		go s.turn(m, cancel)
	case "session/cancel":
		s.mu.Lock()
		if s.cancel != nil {
			close(s.cancel)
			s.cancel = nil
		}
		s.mu.Unlock()
	case "":
		s.answered(m)
	default:
		s.say(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601, "message": "no such method"}})
	}
}

func (s *speaker) say(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.Encode(v); err != nil {
		os.Exit(1)
	}
}

func (s *speaker) reply(id json.RawMessage, result any) {
	s.say(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func (s *speaker) update(u map[string]any) {
	s.say(map[string]any{"jsonrpc": "2.0", "method": "session/update", "params": map[string]any{"sessionId": session, "update": u}})
}

// text says a piece of text.
func (s *speaker) text(text string) {
	s.update(map[string]any{"sessionUpdate": "agent_message_chunk", "content": map[string]any{"type": "text", "text": text}})
}

// answered hands on an answer to what was asked. A second one to the same is told, in a form that no plan has.
func (s *speaker) answered(m *message) {
	id := string(m.ID)
	s.mu.Lock()
	ch := s.asked[id]
	delete(s.asked, id)
	s.mu.Unlock()
	if ch == nil {
		s.text("[an answer to nothing: " + id + "]")
		return
	}
	ch <- m.Result
}

// turn does what a prompt says.
func (s *speaker) turn(m *message, cancel chan struct{}) {
	var p struct {
		Prompt []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	}
	var do plan
	if json.Unmarshal(m.Params, &p) != nil || len(p.Prompt) == 0 || json.Unmarshal([]byte(p.Prompt[0].Text), &do) != nil {
		s.say(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32602, "message": "the prompt is no plan"}})
		return
	}
	t := &turn{speaker: s, name: do.Name + "-" + strings.ToLower(rand.Text()[:6]), cancel: cancel}
	for _, st := range do.Steps {
		switch {
		case st.Edit != "":
			t.edit(st)
		case st.Look:
			t.look(st)
		default:
			for range st.Say {
				if t.over() {
					break
				}
				s.text(fmt.Sprintf("[%s]", t.next()))
				t.pause(st.Pause)
			}
		}
		if t.over() {
			s.reply(m.ID, map[string]any{"stopReason": "cancelled"})
			return
		}
	}
	s.reply(m.ID, map[string]any{"stopReason": "end_turn"})
}

type turn struct {
	*speaker
	name   string
	n      int
	cancel chan struct{}
}

// next is the next number, with the name of the turn.
func (t *turn) next() string {
	t.n++
	return fmt.Sprintf("%s.%d", t.name, t.n-1)
}

func (t *turn) over() bool {
	select {
	case <-t.cancel:
		return true
	default:
		return false
	}
}

func (t *turn) pause(ms int) {
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
	case <-t.cancel:
	}
}

func (t *turn) look(st step) {
	id := t.next()
	t.update(map[string]any{"sessionUpdate": "tool_call", "toolCallId": id, "title": "look", "kind": "read", "status": "in_progress"})
	t.pause(st.Pause)
	t.update(map[string]any{"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed"})
}

// edit appends a line to a file when it is allowed to.
func (t *turn) edit(st step) {
	id, file := t.next(), filepath.Join(t.dir, st.Edit)
	call := map[string]any{"toolCallId": id, "title": "edit", "kind": "edit", "locations": []any{map[string]any{"path": file}}}
	ch := make(chan json.RawMessage, 1)
	t.mu.Lock()
	t.asks++
	ask := fmt.Sprint(t.asks)
	t.asked[ask] = ch
	t.mu.Unlock()
	t.say(map[string]any{"jsonrpc": "2.0", "id": t.asks, "method": "session/request_permission", "params": map[string]any{
		"sessionId": session, "toolCall": call, "options": []any{
			map[string]any{"optionId": "yes", "name": "Allow", "kind": "allow_once"}, map[string]any{"optionId": "no", "name": "Reject", "kind": "reject_once"},
		},
	}})
	var said struct {
		Outcome struct {
			Option string `json:"optionId"`
		} `json:"outcome"`
	}
	_ = json.Unmarshal(<-ch, &said) // what is cancelled names no option
	status := "failed"
	if said.Outcome.Option == "yes" && t.write(file, id) == nil {
		status = "completed"
	}
	t.pause(st.Pause)
	t.update(map[string]any{"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status})
}

func (t *turn) write(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	if bad := f.Close(); err == nil {
		err = bad
	}
	return err
}
