package pi

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// said is what the model has said so far.
type said struct {
	message int               // counts answers of the model
	texts   map[int]*part     // parts of the answer that are not at their end, by their index
	told    bool              // a text of the answer was told by its pieces
	tools   map[string]called // calls that have no result yet, by their id
	stop    string            // why the newest answer has ended
	fault   string            // what went wrong with it
	text    string            // what it says
}

type part struct {
	item string
	text strings.Builder
}

type called struct {
	name, action, path string
	there              bool   // the file was there before
	output             string // that was told
}

func newSaid() said { return said{texts: map[int]*part{}, tools: map[string]called{}} }

// message is an AgentMessage.
type message struct {
	Role    string `json:"role"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Model string `json:"model"`
	Stop  string `json:"stopReason"`
	Error string `json:"errorMessage"`
	Usage struct {
		Input      int64 `json:"input"`
		Output     int64 `json:"output"`
		CacheRead  int64 `json:"cacheRead"`
		CacheWrite int64 `json:"cacheWrite"`
		Reasoning  int64 `json:"reasoning"`
		Cost       struct {
			Total float64 `json:"total"`
		} `json:"cost"`
	} `json:"usage"`
}

// roleOf is who a message is of. That of others may be text alone.
func roleOf(raw json.RawMessage) (string, bool) {
	var m struct {
		Role string `json:"role"`
	}
	err := json.Unmarshal(raw, &m)
	return m.Role, err == nil
}

func (d *said) start(s *session, r *record) bool {
	role, ok := roleOf(r.Message)
	if role == "assistant" {
		d.closeTexts(s)
		d.message++
		d.told = false
	}
	return ok
}

// update tells a piece of an answer. Of calls only the whole is told.
func (d *said) update(s *session, r *record) bool {
	u := &r.Update
	switch u.Type {
	case "text_start":
		d.part(u.Index)
	case "text_delta":
		p := d.part(u.Index)
		if u.Delta != "" {
			p.text.WriteString(u.Delta)
			s.Tell(driver.TextDelta, p.item, driver.TextData{Item: p.item, Text: u.Delta})
		}
	case "text_end":
		d.closeText(s, u.Index)
	case "thinking_delta":
		if u.Delta != "" {
			item := d.item(u.Index)
			s.Tell(driver.ReasoningDelta, item, driver.TextData{Item: item, Text: u.Delta})
		}
	case "start", "thinking_start", "thinking_end", "toolcall_start", "toolcall_delta", "toolcall_end", "done", "error":
	default:
		return false
	}
	return true
}

func (d *said) item(index int) string { return fmt.Sprintf("%d/%d", d.message, index) }

func (d *said) part(index int) *part {
	p := d.texts[index]
	if p == nil {
		p = &part{item: d.item(index)}
		d.texts[index] = p
	}
	return p
}

func (d *said) closeText(s *session, index int) {
	p := d.texts[index]
	delete(d.texts, index)
	if p != nil && p.text.Len() > 0 {
		d.told = true
		s.Tell(driver.TextDone, p.item, driver.TextData{Item: p.item, Text: p.text.String()})
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

// end tells what an answer has used, and its texts if they did not come in pieces.
func (d *said) end(s *session, r *record) bool {
	if role, ok := roleOf(r.Message); role != "assistant" {
		return ok
	}
	var m message
	if json.Unmarshal(r.Message, &m) != nil {
		return false
	}
	d.closeTexts(s)
	var texts []string
	for i, c := range m.Content {
		if c.Type != "text" || c.Text == "" {
			continue
		}
		texts = append(texts, c.Text)
		if item := d.item(i); !d.told {
			s.Tell(driver.TextDone, item, driver.TextData{Item: item, Text: c.Text})
		}
	}
	d.stop, d.fault, d.text = m.Stop, m.Error, strings.Join(texts, "\n")
	u := m.Usage
	if u.Input > 0 || u.Output > 0 || u.CacheRead > 0 || u.CacheWrite > 0 {
		s.Tell(driver.UsageTold, "", driver.UsageData{
			Model: m.Model, Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning, Dollars: u.Cost.Total,
		})
	}
	return true
}

// called tells that a tool is called, and remembers whether the file is there that it may make. Under a policy pi waits for an answer before it makes the
// call; else the file may be there already, and is told to have changed.
func (d *said) called(s *session, r *record) bool {
	if r.Call == "" || r.Tool == "" {
		return false
	}
	if _, ok := d.tools[r.Call]; ok {
		return true
	}
	t := called{name: r.Tool}
	t.action, _ = s.actionOf(r.Tool, r.Args)
	if t.action == driver.ActionEdit {
		var in struct {
			Path string `json:"path"`
		}
		_ = json.Unmarshal(r.Args, &in) // it was read before
		t.path = s.resolve(in.Path)
		_, err := os.Lstat(t.path)
		t.there = err == nil
	}
	d.tools[r.Call] = t
	s.Tell(driver.ToolStarted, r.Call, driver.ToolData{ID: r.Call, Name: r.Tool, Action: t.action, Input: r.Args})
	return true
}

// output tells what a tool has written since the last time. pi tells all of it each time, of long outputs the end alone: then nothing is told until the
// result comes.
func (d *said) output(s *session, r *record) {
	t, ok := d.tools[r.Call]
	text := textOf(r.Partial)
	if rest, grows := strings.CutPrefix(text, t.output); ok && grows && rest != "" {
		t.output = text
		d.tools[r.Call] = t
		s.Tell(driver.ToolOutput, r.Call, driver.TextData{Item: r.Call, Text: rest})
	}
}

func (d *said) returned(s *session, r *record) {
	t, ok := d.tools[r.Call]
	if !ok {
		return
	}
	delete(d.tools, r.Call)
	s.Tell(driver.ToolEnded, r.Call, driver.ToolData{ID: r.Call, Name: t.name, Action: t.action, Failed: r.IsError, Output: textOf(r.Result)})
	if r.IsError || t.path == "" {
		return
	}
	f := driver.FileData{Path: stdio.Within(s.dir, t.path), Op: "change"}
	if !t.there {
		f.Op = "add"
	}
	s.Tell(driver.FileChanged, r.Call, f)
}

// textOf are the texts of a result of a tool.
func textOf(raw json.RawMessage) string {
	var v struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	var list []string
	for _, c := range v.Content {
		if c.Type == "text" {
			list = append(list, c.Text)
		} else {
			list = append(list, "["+c.Type+"]")
		}
	}
	return strings.Join(list, "\n")
}

// turnEnd is how the turn has ended, by its last answer.
func (d *said) turnEnd(aborted bool) driver.TurnEnd {
	e := driver.TurnEnd{Reason: d.stop, Text: d.text}
	switch {
	case aborted || d.stop == "aborted":
		e.Status, e.Reason, e.Text = driver.TurnInterrupted, "aborted", ""
	case d.stop == "length":
		e.Status = driver.TurnLimit
	case d.stop == "error":
		e.Status, e.Fault, e.Text = driver.TurnFailed, d.problem(), ""
	default:
		e.Status = driver.TurnCompleted
	}
	d.stop, d.fault, d.text = "", "", ""
	return e
}

// problem says what went wrong. pi tells it as a text, that begins with the status of HTTP when there was an answer.
func (d *said) problem() *driver.Fault {
	f := &driver.Fault{Kind: agent.Unavailable, Message: strings.TrimSpace(d.fault)}
	var said struct {
		Message string `json:"message"`
	}
	if at := strings.Index(f.Message, "{"); at >= 0 && json.Unmarshal([]byte(f.Message[at:]), &said) == nil && said.Message != "" {
		f.Message = f.Message[:at] + said.Message
	}
	if status := statusOf(d.fault); status != 0 {
		f.Kind = stdio.StatusKind(status)
	}
	if f.Message == "" {
		f.Message = "pi does not say what went wrong"
	}
	if f.Kind == agent.Unavailable {
		f.Hint = stdio.TryLater
	}
	return f
}

func statusOf(text string) int {
	head, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	status, err := strconv.Atoi(strings.TrimSuffix(head, ":"))
	if err != nil || status < 400 || status > 599 {
		return 0
	}
	return status
}
