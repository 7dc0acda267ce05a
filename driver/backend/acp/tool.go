package acp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/jsonrpc"
	"github.com/skep-dev/skep/driver/backend/stdio"
	"github.com/skep-dev/skep/driver/backend/turn"
)

// toolCall is what an update, or a request for a permission, says of a call. What it does not say is as before.
type toolCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title"`
	Kind      string          `json:"kind"`
	Status    string          `json:"status"` // pending, in_progress, completed, failed
	Content   []content       `json:"-"`
	Locations []location      `json:"locations"`
	Input     json.RawMessage `json:"rawInput"`
	Output    json.RawMessage `json:"rawOutput"`
}

type location struct {
	Path string `json:"path"`
}

// content is one piece of a call's.
type content struct {
	Type    string  `json:"type"` // content, diff, terminal
	Content block   `json:"content"`
	Path    string  `json:"path"`
	Old     *string `json:"oldText"`
	New     string  `json:"newText"`
}

// call is a call that is under way.
type call struct {
	toolCall
	name  string // of the tool, as far as that is said
	told  bool   // that it has begun
	shown string // of its output
	diffs []content
}

// maxCalls is the most calls of a turn that are remembered.
const maxCalls = 10_000

// empty says whether JSON says nothing.
func empty(raw json.RawMessage) bool {
	text := strings.TrimSpace(string(raw))
	return text == "" || text == "null" || text == "{}"
}

// merge notes what is said of a call.
func (s *session) merge(t *toolCall) *call {
	c := s.calls[t.ID]
	if c == nil {
		c = &call{toolCall: toolCall{ID: t.ID}}
		if name, _, ok := strings.Cut(t.ID, "__"); ok && s.name == geminiName {
			c.name = name // which that CLI says nowhere else
		}
		if len(s.calls) < maxCalls {
			s.calls[t.ID] = c
		}
	}
	if t.Title != "" {
		c.Title = t.Title
		if c.name == "" && !strings.ContainsAny(t.Title, " \t\n/") {
			c.name = t.Title // that of the tool, which some say before they know more
		}
	}
	if t.Kind != "" {
		c.Kind = t.Kind
	}
	if t.Status != "" {
		c.Status = t.Status
	}
	if len(t.Locations) > 0 {
		c.Locations = t.Locations
	}
	if !empty(t.Input) {
		c.Input = t.Input
	}
	if len(t.Output) > 0 {
		c.Output = t.Output
	}
	if t.Content != nil {
		c.Content = t.Content
	}
	for _, d := range t.Content {
		if d.Type == "diff" && !slices.ContainsFunc(c.diffs, func(o content) bool { return o.Path == d.Path }) {
			c.diffs = append(c.diffs, d)
		}
	}
	return c
}

// tool is the name of what is called.
func (c *call) tool() string {
	switch {
	case c.name != "":
		return c.name
	case c.Kind != "":
		return c.Kind
	}
	return "tool"
}

// called tells what became of a call.
func (s *session) called(t *toolCall) {
	if t.ID == "" {
		return
	}
	c := s.merge(t)
	over := c.Status == "completed" || c.Status == "failed"
	if over || c.Status == "in_progress" {
		s.begin(c)
	}
	if !over {
		s.output(c)
		return
	}
	s.book.ToolDone(driver.ToolData{
		ID: c.ID, Name: c.tool(), Action: c.action(), Title: c.Title, Failed: c.Status == "failed", Output: c.text(),
	})
	if c.Status == "completed" {
		s.changed(c)
	}
	delete(s.calls, c.ID)
}

// begin tells that a call has begun, once.
func (s *session) begin(c *call) {
	if c.told {
		return
	}
	c.told = true
	s.book.Tool(driver.ToolData{ID: c.ID, Name: c.tool(), Action: c.action(), Title: c.Title, Input: c.Input})
}

// output tells what a call has written since it was told of last.
func (s *session) output(c *call) {
	text := c.text()
	if !c.told || text == "" || c.action() == driver.ActionEdit {
		return
	}
	if more, ok := strings.CutPrefix(text, c.shown); ok && more != "" {
		s.book.ToolOutput(c.ID, more)
	}
	c.shown = text
}

// text is what a call has written, or says of itself.
func (c *call) text() string {
	var parts []string
	for _, p := range c.Content {
		if p.Type == "content" && p.Content.Text != "" {
			parts = append(parts, p.Content.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// action is what a call is to the policy.
func (c *call) action() string {
	switch c.Kind {
	case "execute":
		return driver.ActionRun
	case "edit", "delete", "move":
		return driver.ActionEdit
	case "read", "search":
		return driver.ActionRead
	case "fetch":
		return driver.ActionFetch
	}
	return driver.ActionTool
}

// paths are the files that a call is about, each once.
func (s *session) paths(c *call) []string {
	var out []string
	add := func(path string) {
		if path = stdio.Within(s.dir, path); path != "" && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	for _, d := range c.diffs {
		add(d.Path)
	}
	for _, l := range c.Locations {
		add(l.Path)
	}
	return out
}

// changed tells of the files that a call has changed.
func (s *session) changed(c *call) {
	switch c.Kind {
	case "edit", "delete", "move":
	default:
		if len(c.diffs) == 0 {
			return
		}
	}
	var out struct {
		Metadata struct { // of OpenCode
			Exists *bool `json:"exists"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(c.Output, &out) // others have what they like there
	for _, path := range s.paths(c) {
		op := "change"
		i := slices.IndexFunc(c.diffs, func(d content) bool { return stdio.Within(s.dir, d.Path) == path })
		switch {
		case c.Kind == "delete":
			op = "delete"
		case i >= 0 && (c.diffs[i].Old == nil || *c.diffs[i].Old == ""):
			op = "add"
		case i < 0 && out.Metadata.Exists != nil && !*out.Metadata.Exists:
			op = "add"
		}
		s.book.Tell(driver.FileChanged, c.ID, driver.FileData{Path: path, Op: op})
	}
}

// cancelled answers a request of a turn that was interrupted.
var cancelled = map[string]any{"outcome": map[string]any{"outcome": "cancelled"}}

// permission is a session/request_permission.
type permission struct {
	Call    toolCall `json:"toolCall"`
	Options []struct {
		ID   string `json:"optionId"`
		Kind string `json:"kind"`
	} `json:"options"`
}

// choice answers with the first option of the kinds that there is, or as if the turn had been cancelled.
func (p *permission) choice(kinds ...string) any {
	for _, kind := range kinds {
		for _, o := range p.Options {
			if o.Kind == kind {
				return map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": o.ID}}
			}
		}
	}
	return cancelled
}

func (s *session) askPermission(id jsonrpc.ID, raw json.RawMessage) {
	var p permission
	var inner struct {
		Call struct {
			Content []content `json:"content"`
		} `json:"toolCall"`
	}
	err := json.Unmarshal(raw, &p)
	if err == nil {
		err = json.Unmarshal(raw, &inner)
	}
	if err != nil {
		_ = s.conn.Refuse(id, jsonrpc.InvalidParams, err.Error())
		s.book.Unparsed(raw, err.Error())
		return
	}
	p.Call.Content = inner.Call.Content
	allow, deny := p.choice("allow_once", "allow_always"), p.choice("reject_once", "reject_always")
	c := s.merge(&p.Call)
	if s.all {
		_ = s.conn.Reply(id, allow)
		return
	}
	s.begin(c)
	d := driver.PermissionData{ID: s.book.NewID(), Tool: c.tool(), Reason: c.Title}
	d.Action, d.Args = s.judged(c)
	if len(d.Args) > stdio.MaxArgs {
		s.book.Log("the agent wanted to do what is too long to be judged, which was refused: " + c.tool())
		_ = s.conn.Reply(id, deny)
		return
	}
	if d.Action != driver.ActionTool && len(raw) <= stdio.MaxInput {
		d.Input = raw
	}
	s.wait(waiting{id, cancelled}, driver.PermissionAsked, d.ID, d, func(a *driver.Answer) any {
		if a.Allow {
			return allow
		}
		return deny
	})
}

// judged is what a policy judges of a call: its action with all that the action's arguments are, or, where one is not known, the call as it is.
func (s *session) judged(c *call) (string, json.RawMessage) {
	var in struct {
		Command string `json:"command"`
		Cwd     string `json:"cwd"`
		Workdir string `json:"workdir"`
		Dir     string `json:"dir_path"`
		URL     string `json:"url"`
		Path    string `json:"path"`
		Pattern string `json:"pattern"`
	}
	_ = json.Unmarshal(c.Input, &in) // what has other fields has none of these
	var args any
	switch action := c.action(); action {
	case driver.ActionRun:
		switch {
		case in.Command == "" && s.name == geminiName && c.name == "run_shell_command" && c.Title != "":
			args = map[string]any{"command": c.Title} // it is the command as it is; where it runs is not said
		case in.Command != "":
			args = map[string]any{"command": in.Command, "cwd": s.cwd(in.Cwd, in.Workdir, in.Dir)}
		}
	case driver.ActionEdit:
		switch paths := s.paths(c); {
		case len(paths) == 1:
			args = map[string]any{"path": paths[0]}
		case len(paths) > 1:
			args = map[string]any{"paths": paths}
		}
	case driver.ActionRead:
		paths := s.paths(c)
		switch {
		case len(paths) == 1:
			args = map[string]any{"path": paths[0]}
		case len(paths) == 0 && in.Path != "":
			args = map[string]any{"path": stdio.Within(s.dir, in.Path)}
		case len(paths) == 0 && in.Pattern != "":
			args = map[string]any{"path": ".", "pattern": in.Pattern}
		}
	case driver.ActionFetch:
		if in.URL != "" {
			args = map[string]any{"url": in.URL}
		}
	}
	action := c.action()
	if args == nil {
		action, args = driver.ActionTool, map[string]any{"tool": c.tool(), "title": c.Title, "input": c.Input}
	}
	out, err := json.Marshal(args)
	if err != nil { // of input that is no JSON
		out, _ = json.Marshal(map[string]any{"tool": c.tool(), "title": c.Title})
		action = driver.ActionTool
	}
	return action, out
}

// cwd is the first of the directories that is named, as an absolute one.
func (s *session) cwd(list ...string) string {
	for _, dir := range list {
		if dir == "" {
			continue
		}
		if strings.HasPrefix(dir, "/") {
			return dir
		}
		return s.dir + "/" + dir
	}
	return s.dir
}

// askQuestion asks what a form of the agent's asks.
func (s *session) askQuestion(id jsonrpc.ID, raw json.RawMessage) {
	var q struct {
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
		URL     string          `json:"url"`
	}
	if err := json.Unmarshal(raw, &q); err != nil {
		_ = s.conn.Refuse(id, jsonrpc.InvalidParams, err.Error())
		s.book.Unparsed(raw, err.Error())
		return
	}
	d := driver.QuestionData{ID: s.book.NewID(), Text: strings.TrimSpace(q.Message + "\n" + q.URL), Schema: q.Schema}
	s.wait(waiting{id, map[string]any{"action": "cancel"}}, driver.QuestionAsked, d.ID, d, func(a *driver.Answer) any {
		if !a.Allow {
			return map[string]any{"action": "decline"}
		}
		content, err := turn.Form(q.Schema, a.Message)
		if err != nil {
			s.book.Log(err.Error())
			return map[string]any{"action": "decline"}
		}
		return map[string]any{"action": "accept", "content": content}
	})
}
