package pi

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// What the gate says: gateKey is of the status by which it tells that it is there, gateTitle the title of what it asks.
const (
	gateKey   = "skep:gate"
	gateTitle = "skep:permission"
)

// asks is what an extension wants of the user: the gate, or another that the user has installed.
func (s *session) asks(r *record) bool {
	if r.ID == "" {
		return false
	}
	if r.Method == "input" && r.Title == gateTitle {
		return s.permission(r)
	}
	switch r.Method {
	case "select", "confirm", "input", "editor":
		var text string
		_ = json.Unmarshal(r.Message, &text)
		d := driver.QuestionData{ID: r.ID, Text: strings.TrimSpace(r.Title + "\n" + text), Options: r.Options}
		if r.Method == "confirm" {
			d.Options = []string{"yes", "no"}
		}
		s.Ask(r.ID, driver.QuestionAsked, d, func(ctx context.Context, a *driver.Answer) error {
			return s.send(ctx, dialog(r, a))
		})
	case "notify":
		s.log(errorText(r.Message))
	case "setStatus":
		if r.StatusKey == gateKey {
			s.gateUp()
		}
	case "setWidget", "setTitle", "set_editor_text":
	default:
		return false
	}
	return true
}

// dialog is the answer to a dialog.
func dialog(r *record, a *driver.Answer) map[string]any {
	out := map[string]any{"type": "extension_ui_response", "id": r.ID}
	switch {
	case !a.Allow:
		out["cancelled"] = true
	case r.Method == "confirm":
		out["confirmed"] = a.Message != "no"
	default:
		out["value"] = a.Message
	}
	return out
}

// permission is a question of the gate.
func (s *session) permission(r *record) bool {
	var w struct {
		Tool  string          `json:"tool"`
		ID    string          `json:"id"`
		Input json.RawMessage `json:"input"`
	}
	if json.Unmarshal([]byte(r.Placeholder), &w) != nil || w.Tool == "" {
		_ = s.out.Reply(map[string]any{"type": "extension_ui_response", "id": r.ID, "cancelled": true})
		return false
	}
	action, args := s.actionOf(w.Tool, w.Input)
	d := driver.PermissionData{ID: r.ID, Tool: w.Tool, Action: action, Args: args}
	if action != driver.ActionTool && len(w.Input) <= stdio.MaxInput { // else it is in Args, or would make the event so large that it is cut
		d.Input = w.Input
	}
	s.Ask(r.ID, driver.PermissionAsked, d, func(ctx context.Context, a *driver.Answer) error {
		said, _ := json.Marshal(map[string]any{"allow": a.Allow, "message": a.Message}) // of texts
		return s.send(ctx, map[string]any{"type": "extension_ui_response", "id": r.ID, "value": string(said)})
	})
	return true
}

// actionOf is what a call of a tool is to the policy, and its arguments.
func (s *session) actionOf(name string, input json.RawMessage) (action string, args json.RawMessage) {
	var in struct {
		Command string `json:"command"`
		Path    string `json:"path"`
	}
	if json.Unmarshal(input, &in) == nil {
		switch {
		case name == "bash" && in.Command != "":
			return driver.ActionRun, toJSON(map[string]any{"command": in.Command, "cwd": s.dir})
		case (name == "write" || name == "edit") && in.Path != "":
			return driver.ActionEdit, toJSON(map[string]any{"path": s.within(in.Path)})
		case name == "read" && in.Path != "":
			return driver.ActionRead, toJSON(map[string]any{"path": s.within(in.Path)})
		case name == "grep" || name == "find" || name == "ls":
			if in.Path == "" {
				in.Path = s.dir
			}
			return driver.ActionRead, toJSON(map[string]any{"path": s.within(in.Path)})
		}
	}
	if !json.Valid(input) {
		input = json.RawMessage("{}")
	}
	return driver.ActionTool, toJSON(map[string]any{"tool": name, "input": input})
}

// within is a path as it is told, once it is read as pi reads it.
func (s *session) within(path string) string { return stdio.Within(s.dir, s.resolve(path)) }

// unicodeSpaces are what pi takes for a space in a path.
var unicodeSpaces = regexp.MustCompile("[\u00A0\u2000-\u200A\u202F\u205F\u3000]")

// resolve reads a path as pi does (normalizePath of its utils/paths), which knows more than the system does. The gate does the same, so that what is
// judged is what is done.
func (s *session) resolve(path string) string {
	path = strings.TrimPrefix(unicodeSpaces.ReplaceAllString(path, " "), "@")
	if path == "~" {
		path = s.home
	} else if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(s.home, rest)
	}
	if u, err := url.Parse(path); err == nil && strings.HasPrefix(path, "file://") {
		path = u.Path
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.dir, path)
	}
	return filepath.Clean(path)
}

func toJSON(v any) json.RawMessage {
	b, _ := json.Marshal(v) // of texts and JSON
	return b
}
