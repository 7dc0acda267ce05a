package acp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// maxImage is the most bytes of an image that a prompt shows.
const maxImage = 10 << 20

// content is what a prompt is made of.
func (s *session) content(p *driver.Prompt) ([]any, error) {
	text := p.Text
	if strings.HasPrefix(strings.TrimSpace(text), "/") || strings.HasPrefix(strings.TrimSpace(text), "$") {
		text = "Message: " + text // else it is a command to the agent's program itself, which asks nobody
	}
	list := []any{map[string]any{"type": "text", "text": text}}
	for _, path := range p.Images {
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.dir, path)
		}
		if !s.image {
			list = append(list, map[string]any{"type": "resource_link", "uri": "file://" + path, "name": filepath.Base(path)})
			continue
		}
		st, err := os.Stat(path)
		if err == nil && st.Size() > maxImage {
			return nil, agent.Errorf(agent.Invalid, "the image %s has more than %d MiB", path, maxImage>>20)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, agent.Errorf(agent.Invalid, "an image cannot be read: %s", err)
		}
		list = append(list, map[string]any{"type": "image", "mimeType": http.DetectContentType(data), "data": base64.StdEncoding.EncodeToString(data)})
	}
	return list, nil
}

// update is any session/update.
type update struct {
	Kind    string          `json:"sessionUpdate"`
	Message string          `json:"messageId"`
	Content json.RawMessage `json:"content"` // a block of chunks, a list of tools
	Entries []struct {
		Content string `json:"content"`
		Status  string `json:"status"` // pending, in_progress, completed
	} `json:"entries"`
	Used int64 `json:"used"`
	Size int64 `json:"size"`
	toolCall
}

type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// ignored are updates that say nothing which a driver has a word for.
var ignored = map[string]bool{
	"user_message_chunk": true, "available_commands_update": true, "current_mode_update": true, "config_option_update": true, "session_info_update": true,
	"compaction_summary_chunk": true,
}

func (s *session) notify(method string, raw json.RawMessage) {
	if strings.HasPrefix(method, "_") || strings.HasPrefix(method, "$/") {
		return // extensions of the agent's, and cancelled requests, of which there are none
	}
	var n struct {
		Session string `json:"sessionId"`
		Update  update `json:"update"`
	}
	if method != "session/update" {
		s.book.Unparsed(raw, "a notification "+method)
		return
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		s.book.Unparsed(raw, err.Error())
		return
	}
	s.mu.Lock()
	live := s.live && (n.Session == "" || n.Session == s.id)
	s.mu.Unlock()
	if !live {
		s.replayed()
	}
	if live && !ignored[n.Update.Kind] {
		s.updated(&n.Update, raw)
	}
}

func (s *session) updated(u *update, raw json.RawMessage) {
	switch u.Kind {
	case "agent_message_chunk":
		s.chunk(u, raw)
	case "agent_thought_chunk":
		var b block
		if json.Unmarshal(u.Content, &b) == nil && b.Text != "" {
			s.book.Pause()
			s.book.Tell(driver.ReasoningDelta, u.Message, driver.TextData{Item: "thought-" + strconv.Itoa(s.said), Text: b.Text})
		}
	case "tool_call", "tool_call_update":
		if err := json.Unmarshal(u.Content, &u.toolCall.Content); err != nil && len(u.Content) > 0 {
			s.book.Unparsed(raw, err.Error())
			return
		}
		s.called(&u.toolCall)
	case "plan":
		d := driver.PlanData{Steps: []driver.PlanStep{}}
		for _, e := range u.Entries {
			status := map[string]string{"in_progress": "running", "completed": "done"}[e.Status]
			if status == "" {
				status = "pending"
			}
			d.Steps = append(d.Steps, driver.PlanStep{Text: e.Content, Status: status})
		}
		s.book.Tell(driver.PlanUpdated, "", d)
	case "usage_update":
		if u.Used > 0 {
			s.book.Tell(driver.ContextTold, "", driver.ContextData{Used: u.Used, Size: u.Size})
		}
	case "notice":
		s.book.Log(string(raw))
	case "compaction_update":
		s.book.Tell(driver.Compaction, "", nil)
	default:
		s.book.Unparsed(raw, fmt.Sprintf("an update %.40q", u.Kind))
	}
}

// chunk is a piece of what the agent says. A text ends where another message, or something else, begins; the protocol has no sign of it.
func (s *session) chunk(u *update, raw json.RawMessage) {
	var b block
	if err := json.Unmarshal(u.Content, &b); err != nil || b.Type != "text" {
		s.book.Unparsed(raw, "a message that is no text")
		return
	}
	if !s.book.Saying(u.Message) {
		s.said++
	}
	s.book.Say("text-"+strconv.Itoa(s.said), u.Message, b.Text)
}
