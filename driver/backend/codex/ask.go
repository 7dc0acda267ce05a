package codex

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/jsonrpc"
	"github.com/skep-dev/skep/driver/backend/stdio"
	"github.com/skep-dev/skep/driver/backend/turn"
)

// askParams are those of any request of Codex's that is known.
type askParams struct {
	Item    string `json:"itemId"`
	Kind    string `json:"kind"` // command, writeStdin
	Command string `json:"command"`
	Cwd     string `json:"cwd"`
	Reason  string `json:"reason"`
	Root    string `json:"grantRoot"`
	Network *struct {
		Host     string `json:"host"`
		Protocol string `json:"protocol"`
	} `json:"networkApprovalContext"`
	Permissions json.RawMessage `json:"permissions"`
	Questions   []question      `json:"questions"`

	Server  string          `json:"serverName"` // mcpServer/elicitation/request
	Mode    string          `json:"mode"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"requestedSchema"`
	URL     string          `json:"url"`
}

type question struct {
	ID       string `json:"id"`
	Header   string `json:"header"`
	Question string `json:"question"`
	Options  []struct {
		Label string `json:"label"`
	} `json:"options"`
}

// askers are the requests of Codex's that are answered. A further one is refused, and told.
var askers = map[string]func(*session, jsonrpc.ID, json.RawMessage, *askParams){
	"item/commandExecution/requestApproval": (*session).askCommand,
	"item/fileChange/requestApproval":       (*session).askChange,
	"item/permissions/requestApproval":      (*session).askPermissions,
	"item/tool/requestUserInput":            (*session).askQuestions,
	"mcpServer/elicitation/request":         (*session).askElicitation,
}

func (s *session) ask(id jsonrpc.ID, method string, raw json.RawMessage) {
	f := askers[method]
	if f == nil {
		_ = s.conn.Refuse(id, jsonrpc.NoMethod, "the client has no method "+method)
		s.book.Unparsed(raw, "a request "+method)
		return
	}
	var p askParams
	if err := json.Unmarshal(raw, &p); err != nil {
		_ = s.conn.Refuse(id, jsonrpc.InvalidParams, err.Error())
		s.book.Unparsed(raw, "a request "+method+": "+err.Error())
		return
	}
	f(s, id, raw, &p)
}

// permit asks for a permission. allow and deny are what Codex is answered. args that are too long for an event are refused: a policy has to see all of them.
func (s *session) permit(id jsonrpc.ID, d driver.PermissionData, args, allow, deny any) {
	d.Args, _ = json.Marshal(args)
	if s.all {
		_ = s.conn.Reply(id, allow)
		return
	}
	if len(d.Args) > stdio.MaxArgs {
		s.book.Log("Codex wanted to do what is too long to be judged, which was refused: " + d.Tool)
		_ = s.conn.Reply(id, deny)
		return
	}
	if len(d.Input) > stdio.MaxInput {
		d.Input = nil
	}
	d.ID = s.book.NewID()
	s.open(id, driver.PermissionAsked, d.ID, d, func(a *driver.Answer) error {
		if a.Allow {
			return s.conn.Reply(id, allow)
		}
		s.because(a.Message)
		return s.conn.Reply(id, deny)
	})
}

// because tells the model why something is not allowed. An answer has no place for that, so that it goes into the turn as something said beside; it goes
// before the answer, while the turn surely is under way.
func (s *session) because(why string) {
	s.mu.Lock()
	id := s.id
	s.mu.Unlock()
	if why == "" || id == "" {
		return
	}
	args := map[string]any{"threadId": s.thread, "expectedTurnId": id, "input": []any{map[string]any{"type": "text", "text": "This was not allowed: " + why}}}
	s.conn.Go("turn/steer", args, func(_ json.RawMessage, err error) {
		if err != nil && s.book.Turn() != "" {
			s.book.Log("Codex was not told why something is not allowed: " + err.Error())
		}
	})
}

// open keeps what is asked, so that Codex can take it back.
func (s *session) open(id jsonrpc.ID, kind, ask string, data any, answer func(*driver.Answer) error) {
	s.asks[string(id)] = ask
	s.book.Ask(ask, kind, data, func(_ context.Context, a *driver.Answer) error { return answer(a) })
}

func decide(word string) any { return map[string]any{"decision": word} }

func (s *session) askCommand(id jsonrpc.ID, raw json.RawMessage, p *askParams) {
	d := driver.PermissionData{Tool: "shell", Action: driver.ActionRun, Reason: p.Reason, Input: raw}
	var args any = map[string]any{"command": unwrap(p.Command), "cwd": p.Cwd}
	switch {
	case p.Network != nil:
		d.Action, args = driver.ActionFetch, map[string]any{"url": p.Network.Protocol + "://" + p.Network.Host}
	case p.Kind == "writeStdin" || p.Command == "":
		d.Tool, d.Action, args = "write_stdin", driver.ActionTool, map[string]any{"tool": "write_stdin", "input": raw}
	}
	s.permit(id, d, args, decide("accept"), decide("decline"))
}

func (s *session) askChange(id jsonrpc.ID, _ json.RawMessage, p *askParams) {
	changes := s.changes[p.Item]
	paths := s.paths(changes)
	if p.Root != "" {
		paths = append(paths, s.within(p.Root))
	}
	if len(paths) == 0 {
		s.book.Log("Codex wanted to change files without saying which, which was refused")
		_ = s.conn.Reply(id, decide("decline"))
		return
	}
	d := driver.PermissionData{Tool: "apply_patch", Action: driver.ActionEdit, Reason: p.Reason}
	d.Input, _ = json.Marshal(map[string]any{"changes": changes})
	var args any = map[string]any{"path": paths[0]}
	if len(paths) > 1 {
		args = map[string]any{"paths": paths}
	}
	s.permit(id, d, args, decide("accept"), decide("decline"))
}

func (s *session) askPermissions(id jsonrpc.ID, raw json.RawMessage, p *askParams) {
	const tool = "request_permissions"
	d := driver.PermissionData{Tool: tool, Action: driver.ActionTool, Reason: p.Reason, Input: raw}
	grant := func(what any) any { return map[string]any{"permissions": what, "scope": "turn"} }
	s.permit(id, d, map[string]any{"tool": tool, "input": p.Permissions}, grant(p.Permissions), grant(map[string]any{}))
}

// askQuestions asks what a tool of Codex's asks. More than one question are asked as one, whose answer is a JSON object with one text for each.
func (s *session) askQuestions(id jsonrpc.ID, _ json.RawMessage, p *askParams) {
	d := driver.QuestionData{}
	var lines []string
	fields := map[string]any{}
	for _, q := range p.Questions {
		text := strings.TrimSpace(q.Question)
		if q.Header != "" {
			text = q.Header + ": " + text
		}
		lines = append(lines, text)
		field := map[string]any{"type": "string", "description": text}
		var labels []string
		for _, o := range q.Options {
			labels = append(labels, o.Label)
		}
		if len(labels) > 0 {
			field["examples"] = labels
		}
		fields[q.ID] = field
		d.Options = labels
	}
	d.Text = strings.Join(lines, "\n")
	if len(p.Questions) != 1 {
		d.Options = nil
		d.Schema, _ = json.Marshal(map[string]any{"type": "object", "properties": fields})
	}
	s.question(id, d, func(a *driver.Answer) (any, error) {
		answers := map[string]any{}
		if a.Allow {
			var err error
			if answers, err = answersOf(p.Questions, a.Message); err != nil {
				return nil, err
			}
		}
		return map[string]any{"answers": answers}, nil
	}, map[string]any{"answers": map[string]any{}})
}

// answersOf is what Codex is answered when the answer is text.
func answersOf(list []question, text string) (map[string]any, error) {
	one := func(text string) any { return map[string]any{"answers": []string{text}} }
	if len(list) == 1 {
		return map[string]any{list[0].ID: one(text)}, nil
	}
	var each map[string]string
	if err := json.Unmarshal([]byte(text), &each); err != nil {
		return nil, agent.Errorf(agent.Invalid, "the answer to %d questions has to be a JSON object with a text for each: %s", len(list), err)
	}
	out := map[string]any{}
	for id, text := range each {
		out[id] = one(text)
	}
	return out, nil
}

func (s *session) askElicitation(id jsonrpc.ID, _ json.RawMessage, p *askParams) {
	d := driver.QuestionData{Text: fmt.Sprintf("%s asks: %s", p.Server, p.Message), Schema: p.Schema}
	if p.Mode == "url" {
		d.Text, d.Schema = d.Text+"\n"+p.URL, nil
	}
	decline := map[string]any{"action": "decline", "content": nil}
	s.question(id, d, func(a *driver.Answer) (any, error) {
		if !a.Allow {
			return decline, nil
		}
		if len(d.Schema) == 0 {
			return map[string]any{"action": "accept", "content": nil}, nil
		}
		content, err := turn.Form(d.Schema, a.Message)
		if err != nil {
			return nil, err
		}
		return map[string]any{"action": "accept", "content": content}, nil
	}, decline)
}

// question asks something. none is what Codex is answered when an answer cannot be used or nobody is there to ask.
func (s *session) question(id jsonrpc.ID, d driver.QuestionData, reply func(*driver.Answer) (any, error), none any) {
	d.ID = s.book.NewID()
	s.open(id, driver.QuestionAsked, d.ID, d, func(a *driver.Answer) error {
		out, err := reply(a)
		if err != nil {
			s.book.Log(err.Error())
			out = none
		}
		return s.conn.Reply(id, out)
	})
}

// unwrap is the command that a shell is given: Codex writes /bin/bash -lc 'ls -la' where the model has said ls -la. What does not have that form exactly
// stays as it is.
func unwrap(command string) string {
	words, ok := split(command)
	if !ok || len(words) != 3 || words[1] != "-lc" && words[1] != "-c" {
		return command
	}
	switch filepath.Base(words[0]) {
	case "bash", "sh", "zsh":
		return words[2]
	}
	return command
}

// split is text as the words that a shell makes of it, where it has nothing but words and quotes (POSIX, Shell Command Language, 2.2).
func split(text string) (words []string, ok bool) {
	var word strings.Builder
	in := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ':
			if in {
				words, in = append(words, word.String()), false
				word.Reset()
			}
			continue
		case '\'':
			end := strings.IndexByte(text[i+1:], '\'')
			if end < 0 {
				return nil, false
			}
			word.WriteString(text[i+1 : i+1+end])
			i += end + 1
		case '"':
			n, ok := double(&word, text[i+1:])
			if !ok {
				return nil, false
			}
			i += n
		case '\\':
			if i++; i == len(text) || text[i] == '\n' {
				return nil, false
			}
			word.WriteByte(text[i])
		default:
			if strings.IndexByte("|&;<>()$`\t\n*?[]{}#~!", c) >= 0 {
				return nil, false
			}
			word.WriteByte(c)
		}
		in = true
	}
	if in {
		words = append(words, word.String())
	}
	return words, true
}

// double writes what is within double quotes to word, and returns how many bytes of text that and the end of it are.
func double(word *strings.Builder, text string) (int, bool) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, true
		case c == '$' || c == '`':
			return 0, false
		case c == '\\' && i+1 < len(text) && strings.IndexByte("$`\"\\", text[i+1]) >= 0:
			i++
			word.WriteByte(text[i])
		default:
			word.WriteByte(c)
		}
	}
	return 0, false
}
