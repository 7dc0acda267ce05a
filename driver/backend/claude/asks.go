package claude

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// wants is a request of the CLI's.
type wants struct {
	Subtype string          `json:"subtype"`
	Tool    string          `json:"tool_name"`
	Input   json.RawMessage `json:"input"`
	ToolUse string          `json:"tool_use_id"`
	Reason  string          `json:"decision_reason"`
}

// questionTool is the tool by which the model asks the user. It comes as a permission whose answer is in its input.
const questionTool = "AskUserQuestion"

// asks is a request of the CLI's. One that is not known is refused, so that the CLI does not wait for ever.
func (s *session) asks(f *frame) bool {
	var w wants
	if f.ID == "" || json.Unmarshal(f.Request, &w) != nil {
		return false
	}
	if w.Subtype != "can_use_tool" {
		_ = s.out.Reply(map[string]any{"type": "control_response", "response": map[string]any{
			"subtype": "error", "request_id": f.ID, "error": "this host has no " + w.Subtype,
		}})
		return false
	}
	if q, ok := questionsOf(&w); ok {
		s.Ask(f.ID, driver.QuestionAsked, q.data(f.ID), func(ctx context.Context, a *driver.Answer) error {
			return s.decide(ctx, f.ID, q.answer(&w, a))
		})
		return true
	}
	if s.all {
		_ = s.out.Reply(decided(f.ID, allowed(w.Input)))
		return true
	}
	action, args := actionOf(w.Tool, w.Input, s.dir)
	d := driver.PermissionData{ID: f.ID, Tool: w.Tool, Action: action, Args: args, Reason: w.Reason}
	if action != driver.ActionTool && len(w.Input) <= stdio.MaxInput { // else it is in Args, or would make the event so large that it is cut
		d.Input = w.Input
	}
	s.Ask(f.ID, driver.PermissionAsked, d, func(ctx context.Context, a *driver.Answer) error {
		if a.Allow {
			return s.decide(ctx, f.ID, allowed(w.Input))
		}
		return s.decide(ctx, f.ID, denied(a.Message))
	})
	return true
}

// decide sends a decision.
func (s *session) decide(ctx context.Context, id string, decision map[string]any) error {
	return s.send(ctx, decided(id, decision))
}

func decided(id string, decision map[string]any) map[string]any {
	return map[string]any{"type": "control_response", "response": map[string]any{"subtype": "success", "request_id": id, "response": decision}}
}

func allowed(input json.RawMessage) map[string]any {
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	return map[string]any{"behavior": "allow", "updatedInput": input}
}

func denied(why string) map[string]any {
	if why == "" {
		why = "this is not allowed"
	}
	return map[string]any{"behavior": "deny", "message": why}
}

// actionOf is what a call of a tool is to the policy, and its arguments.
func actionOf(name string, input json.RawMessage, dir string) (action string, args json.RawMessage) {
	var in struct {
		Command  string `json:"command"`
		File     string `json:"file_path"`
		Notebook string `json:"notebook_path"`
		Path     string `json:"path"`
		Pattern  string `json:"pattern"`
		URL      string `json:"url"`
	}
	if json.Unmarshal(input, &in) == nil {
		switch name {
		case "Bash", "Monitor":
			if in.Command != "" {
				return driver.ActionRun, toJSON(map[string]any{"command": in.Command}) // its directory is that of its last cd
			}
		case "Edit", "Write", "MultiEdit":
			if in.File != "" {
				return driver.ActionEdit, toJSON(map[string]any{"path": stdio.Within(dir, in.File)})
			}
		case "NotebookEdit":
			if in.Notebook != "" {
				return driver.ActionEdit, toJSON(map[string]any{"path": stdio.Within(dir, in.Notebook)})
			}
		case "Read":
			if in.File != "" {
				return driver.ActionRead, toJSON(map[string]any{"path": stdio.Within(dir, in.File)})
			}
		case "Glob", "Grep":
			if in.Path == "" {
				in.Path = dir
			}
			return driver.ActionRead, toJSON(map[string]any{"path": stdio.Within(dir, in.Path), "pattern": in.Pattern})
		case "WebFetch":
			if in.URL != "" {
				return driver.ActionFetch, toJSON(map[string]any{"url": in.URL})
			}
		}
	}
	if !json.Valid(input) {
		input = json.RawMessage("{}")
	}
	return driver.ActionTool, toJSON(map[string]any{"tool": name, "input": input})
}

func toJSON(v any) json.RawMessage {
	b, _ := json.Marshal(v) // of texts and JSON
	return b
}

// questions are those of one call.
type questions struct {
	List []struct {
		Question string `json:"question"`
		Options  []struct {
			Label       string `json:"label"`
			Description string `json:"description"`
		} `json:"options"`
		Multi bool `json:"multiSelect"`
	} `json:"questions"`
}

func questionsOf(w *wants) (q questions, ok bool) {
	if w.Tool != questionTool || json.Unmarshal(w.Input, &q) != nil {
		return q, false
	}
	return q, len(q.List) > 0
}

// data is what is asked. One question has its options, of which one is an answer, as any other text is; more than one are answered by an object.
func (q *questions) data(id string) driver.QuestionData {
	if len(q.List) == 1 {
		d := driver.QuestionData{ID: id, Text: q.List[0].Question}
		for _, o := range q.List[0].Options {
			d.Options = append(d.Options, o.Label)
		}
		return d
	}
	var text []string
	fields := map[string]any{}
	for i, one := range q.List {
		var labels []string
		for _, o := range one.Options {
			labels = append(labels, o.Label)
		}
		text = append(text, fmt.Sprintf("%d. %s (%s)", i+1, one.Question, strings.Join(labels, ", ")))
		fields[one.Question] = map[string]any{"type": "string", "examples": labels}
	}
	return driver.QuestionData{ID: id, Text: strings.Join(text, "\n"), Schema: toJSON(map[string]any{"type": "object", "properties": fields})}
}

// answer is the decision that has the answers. Of more than one question, a text that is no object answers each.
func (q *questions) answer(w *wants, a *driver.Answer) map[string]any {
	if !a.Allow {
		why := a.Message
		if why == "" {
			why = "nobody answers; go on as you think best"
		}
		return denied(why)
	}
	answers := map[string]string{}
	if len(q.List) == 1 || json.Unmarshal([]byte(a.Message), &answers) != nil {
		clear(answers)
		for _, one := range q.List {
			answers[one.Question] = a.Message
		}
	}
	input := map[string]json.RawMessage{}
	_ = json.Unmarshal(w.Input, &input) // it was read before
	input["answers"] = toJSON(answers)
	return allowed(toJSON(input))
}
