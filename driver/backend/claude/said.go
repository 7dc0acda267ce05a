package claude

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// said is what the model has said so far. Each answer of the model comes twice: in pieces, as stream_event, and whole, as assistant. Texts are told from the
// pieces, unless there are none; calls of tools from the whole.
type said struct {
	message string              // id of the answer whose pieces come
	pieces  map[string]bool     // ids of answers of which pieces came
	texts   map[int]*part       // parts of the answer that are not at their end, by their index
	tools   map[string]tool     // calls that have no result yet, by their id
	tasks   map[string]bool     // subagents that run
	models  map[string]modelUse // of what UsageTold was told
	plan    plan
	context int64 // tokens of the newest answer and what led to it
	refused bool
}

type part struct {
	item string
	kind string
	text strings.Builder
}

type tool struct{ name, action string }

func newSaid() said {
	return said{
		pieces: map[string]bool{}, texts: map[int]*part{}, tools: map[string]tool{}, tasks: map[string]bool{}, models: map[string]modelUse{},
	}
}

// maxPieces bounds the ids of answers that are kept.
const maxPieces = 1000

// streamEvent is an event of a stream of Anthropic's messages API.
type streamEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		ID    string   `json:"id"`
		Usage apiUsage `json:"usage"`
	} `json:"message"`
	Usage apiUsage `json:"usage"`
	Block struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
	} `json:"content_block"`
	Delta struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
	} `json:"delta"`
}

type apiUsage struct {
	Input      int64 `json:"input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	Output     int64 `json:"output_tokens"`
}

// event tells a piece of an answer.
func (d *said) event(s *session, f *frame) bool {
	var e streamEvent
	if json.Unmarshal(f.Event, &e) != nil {
		return false
	}
	if f.Parent != "" { // a subagent's: its calls are told from the whole
		return true
	}
	switch e.Type {
	case "message_start":
		d.closeTexts(s)
		d.message = e.Message.ID
		if len(d.pieces) >= maxPieces {
			clear(d.pieces)
		}
		d.pieces[d.message] = true
		u := e.Message.Usage
		d.context = u.Input + u.CacheRead + u.CacheWrite
	case "content_block_start":
		t := &part{item: fmt.Sprintf("%s/%d", d.message, e.Index), kind: e.Block.Type}
		d.texts[e.Index] = t
		d.piece(s, t, e.Block.Text+e.Block.Thinking)
	case "content_block_delta":
		t := d.texts[e.Index]
		if t == nil {
			return e.Delta.Text+e.Delta.Thinking == ""
		}
		d.piece(s, t, e.Delta.Text+e.Delta.Thinking)
	case "content_block_stop":
		d.closeText(s, e.Index)
	case "message_delta":
		d.context += e.Usage.Output
	case "message_stop", "ping", "error":
	default:
		return false
	}
	return true
}

func (d *said) piece(s *session, t *part, text string) {
	if text == "" {
		return
	}
	t.text.WriteString(text)
	switch t.kind {
	case "text":
		s.Tell(driver.TextDelta, t.item, driver.TextData{Item: t.item, Text: text})
	case "thinking":
		s.Tell(driver.ReasoningDelta, t.item, driver.TextData{Item: t.item, Text: text})
	}
}

func (d *said) closeText(s *session, index int) {
	t := d.texts[index]
	delete(d.texts, index)
	if t != nil && t.kind == "text" && t.text.Len() > 0 {
		s.Tell(driver.TextDone, t.item, driver.TextData{Item: t.item, Text: t.text.String()})
	}
}

func (d *said) closeTexts(s *session) {
	for _, i := range slices.Sorted(maps.Keys(d.texts)) {
		d.closeText(s, i)
	}
}

// close tells the end of all that has none, since the turn has ended.
func (d *said) close(s *session) {
	d.closeTexts(s)
	for _, id := range slices.Sorted(maps.Keys(d.tools)) {
		t := d.tools[id]
		s.Tell(driver.ToolEnded, id, driver.ToolData{ID: id, Name: t.name, Action: t.action, Failed: true})
	}
	clear(d.tools)
}

// content is an answer or a message of the messages API.
type content struct {
	ID      string          `json:"id"`
	Content json.RawMessage `json:"content"` // text, or a list of block
}

type block struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	ToolUse string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error"`
}

// blocks are the parts of a content, which may be text alone.
func blocks(raw json.RawMessage) (list []block, ok bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []block{{Type: "text", Text: text}}, true
	}
	return list, json.Unmarshal(raw, &list) == nil
}

// textOf are the texts of a content, one under the other. What is no text is named.
func textOf(raw json.RawMessage) string {
	list, ok := blocks(raw)
	if !ok {
		return string(raw)
	}
	var texts []string
	for _, b := range list {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		} else {
			texts = append(texts, "["+b.Type+"]")
		}
	}
	return strings.Join(texts, "\n")
}

// assistant tells what of an answer was not told by its pieces.
func (d *said) assistant(s *session, f *frame) bool {
	var m content
	if json.Unmarshal(f.Message, &m) != nil {
		return false
	}
	list, ok := blocks(m.Content)
	if !ok {
		return false
	}
	known := true
	for i, b := range list {
		switch b.Type {
		case "text":
			switch {
			case len(f.Error) > 0 && string(f.Error) != "null", b.Text == "": // the result of the turn tells of it
			case f.Parent != "":
				s.Tell(driver.ToolOutput, f.Parent, driver.TextData{Item: f.Parent, Text: b.Text})
			case !d.pieces[m.ID]:
				item := fmt.Sprintf("%s/%d", m.ID, i)
				s.Tell(driver.TextDone, item, driver.TextData{Item: item, Text: b.Text})
			}
		case "tool_use", "server_tool_use", "mcp_tool_use":
			known = d.call(s, b) && known
		}
	}
	return known
}

// call tells that a tool is called, once. It reports whether the call says which.
func (d *said) call(s *session, b block) bool {
	if b.ID == "" || b.Name == "" {
		return false
	}
	if _, ok := d.tools[b.ID]; ok {
		return true
	}
	action, _ := actionOf(b.Name, b.Input, s.dir)
	d.tools[b.ID] = tool{b.Name, action}
	s.Tell(driver.ToolStarted, b.ID, driver.ToolData{ID: b.ID, Name: b.Name, Action: action, Input: b.Input, Title: titleOf(b.Input)})
	d.plan.called(b)
	return true
}

// titleOf is what a call says of itself.
func titleOf(input json.RawMessage) string {
	var in struct {
		Description string `json:"description"`
	}
	_ = json.Unmarshal(input, &in)
	return in.Description
}

// user tells results of tools. Texts are what we have said, or what the CLI says to the model in our place.
func (d *said) user(s *session, f *frame) bool {
	var m content
	if json.Unmarshal(f.Message, &m) != nil {
		return false
	}
	list, ok := blocks(m.Content)
	if !ok {
		return false
	}
	for _, b := range list {
		if b.Type != "tool_result" {
			continue
		}
		t, known := d.tools[b.ToolUse]
		if !known {
			continue
		}
		delete(d.tools, b.ToolUse)
		s.Tell(driver.ToolEnded, b.ToolUse, driver.ToolData{ID: b.ToolUse, Name: t.name, Action: t.action, Failed: b.IsError, Output: textOf(b.Content)})
		if data, ok := changeOf(t.name, f.Result, s.dir); ok && !b.IsError {
			s.Tell(driver.FileChanged, b.ToolUse, data)
		}
		if d.plan.result(t.name, b.ToolUse, b.IsError, f.Result) {
			s.Tell(driver.PlanUpdated, "", d.plan.data())
		}
	}
	return true
}

// changeOf is the file that a tool has changed, as its result has it.
func changeOf(name string, result json.RawMessage, dir string) (driver.FileData, bool) {
	var r struct {
		Type     string  `json:"type"`
		File     string  `json:"filePath"`
		Notebook string  `json:"notebook_path"`
		Original *string `json:"originalFile"`
	}
	if json.Unmarshal(result, &r) != nil {
		return driver.FileData{}, false
	}
	d := driver.FileData{Op: "change"}
	switch name {
	case "Write", "Edit", "MultiEdit":
		d.Path = stdio.Within(dir, r.File)
		if r.Type == "create" || r.Type == "" && r.Original == nil {
			d.Op = "add"
		}
	case "NotebookEdit":
		d.Path = stdio.Within(dir, r.Notebook)
	}
	return d, d.Path != ""
}

// task tells of subagents. Commands in the background are tasks, too, and are told as calls of a tool.
func (d *said) task(s *session, f *frame) {
	switch {
	case f.Subtype == "task_started":
		if f.TaskType == "local_bash" || d.tasks[f.Task] {
			return
		}
		d.tasks[f.Task] = true
		s.Tell(driver.Subagent, f.Task, driver.SubagentData{ID: f.Task, State: "started", Text: f.Description})
	case !d.tasks[f.Task]:
	case f.Subtype == "task_notification":
		delete(d.tasks, f.Task)
		s.Tell(driver.Subagent, f.Task, driver.SubagentData{ID: f.Task, State: "ended", Text: f.Summary})
	case f.Patch.Status == "completed" || f.Patch.Status == "failed" || f.Patch.Status == "killed":
		delete(d.tasks, f.Task)
		s.Tell(driver.Subagent, f.Task, driver.SubagentData{ID: f.Task, State: "ended", Text: f.Patch.Error})
	}
}
