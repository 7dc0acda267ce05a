package codex

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// handlers are the notifications that mean something to a session.
var handlers = map[string]func(*session, *params){
	"turn/started":   func(s *session, p *params) { s.named(p.Turn.ID) },
	"turn/completed": (*session).completed,

	"item/agentMessage/delta":           func(s *session, p *params) { s.book.Say(p.ItemID, p.ItemID, p.Delta) },
	"item/plan/delta":                   func(s *session, p *params) { s.book.Say(p.ItemID, p.ItemID, p.Delta) },
	"item/reasoning/summaryTextDelta":   (*session).think,
	"item/reasoning/textDelta":          (*session).think,
	"turn/plan/updated":                 (*session).plan,
	"thread/tokenUsage/updated":         (*session).usage,
	"error":                             (*session).failed,
	"item/started":                      func(s *session, p *params) { s.started(&p.Item) },
	"item/completed":                    func(s *session, p *params) { s.ended(&p.Item) },
	"item/commandExecution/outputDelta": func(s *session, p *params) { s.book.ToolOutput(p.ItemID, p.Delta) },
	"item/mcpToolCall/progress":         func(s *session, p *params) { s.book.ToolOutput(p.ItemID, p.Text) },
	"item/fileChange/patchUpdated":      func(s *session, p *params) { s.remember(p.ItemID, p.Changes) },
	"serverRequest/resolved":            (*session).resolved,

	"warning":           func(s *session, p *params) { s.log(p.Text) },
	"guardianWarning":   func(s *session, p *params) { s.log(p.Text) },
	"configWarning":     func(s *session, p *params) { s.log(p.Summary) },
	"deprecationNotice": func(s *session, p *params) { s.log(p.Summary) },
}

// ofThread are the notifications that are only of use when they are about the session's own thread, and not about one of an agent below it.
var ofThread = []string{
	"turn/started", "turn/completed", "item/agentMessage/delta", "item/plan/delta", "item/reasoning/summaryTextDelta", "item/reasoning/textDelta", "turn/plan/updated",
	"thread/tokenUsage/updated", "error",
}

// ignored are the notifications that say nothing new, or nothing about what a driver has.
var ignored = []string{
	"account/gatewayOAuth/changed", "account/login/completed", "account/rateLimits/updated", "account/updated", "app/list/updated", "autoApprovalReview/strictReviewRequired",
	"command/exec/outputDelta", "externalAgentConfig/import/completed", "externalAgentConfig/import/progress", "fs/changed", "fuzzyFileSearch/sessionCompleted",
	"fuzzyFileSearch/sessionUpdated", "hook/completed", "hook/started", "item/autoApprovalReview/completed", "item/autoApprovalReview/started",
	"item/commandExecution/terminalInteraction", "item/fileChange/outputDelta", "item/reasoning/summaryPartAdded", "mcpServer/event/stream/notification",
	"mcpServer/oauthLogin/completed", "mcpServer/startupStatus/updated", "model/rerouted", "model/safetyBuffering/updated", "model/verification",
	"modelProvider/authRecoveryCompleted", "modelProvider/authRecoveryStarted", "process/exited", "process/outputDelta", "project/changed", "remoteControl/status/changed",
	"skills/changed", "thread/archived", "thread/attachment/updated", "thread/closed", "thread/compacted", "thread/deleted", "thread/environment/connected",
	"thread/environment/disconnected", "thread/goal/cleared", "thread/goal/updated", "thread/name/updated", "thread/prediction/updated", "thread/project/updated",
	"thread/queue/changed", "thread/readState/changed", "thread/realtime/closed", "thread/realtime/error", "thread/realtime/item/completed", "thread/realtime/item/started",
	"thread/realtime/item/transcript/delta", "thread/realtime/itemAdded", "thread/realtime/outputAudio/delta", "thread/realtime/sdp", "thread/realtime/started",
	"thread/realtime/transcript/delta", "thread/realtime/transcript/done", "thread/reverted", "thread/search/partial", "thread/section/changed", "thread/settings/updated",
	"thread/started", "thread/status/changed", "thread/unarchived", "turn/diff/updated", "turn/moderationMetadata", "windows/worldWritableWarning",
	"windowsSandbox/setupCompleted",
}

func (s *session) notify(method string, raw json.RawMessage) {
	f := handlers[method]
	if f == nil {
		if !slices.Contains(ignored, method) {
			s.book.Unparsed(raw, method)
		}
		return
	}
	var p params
	if err := json.Unmarshal(raw, &p); err != nil {
		s.book.Unparsed(raw, method+": "+err.Error())
		return
	}
	s.mu.Lock()
	other := p.Thread != "" && p.Thread != s.thread
	s.mu.Unlock()
	if other && slices.Contains(ofThread, method) {
		return
	}
	f(s, &p)
}

// log tells what Codex warns of. That its own sandbox is incomplete is nothing new: it is not used.
func (s *session) log(text string) {
	if text != "" && !strings.Contains(text, "bubblewrap") {
		s.book.Log(text)
	}
}

func (s *session) completed(p *params) {
	s.mu.Lock()
	s.id = ""
	s.mu.Unlock()
	clear(s.asks)
	clear(s.changes)
	clear(s.thought)
	failure := s.failure
	s.failure, s.retries = nil, 0
	end := driver.TurnEnd{Status: driver.TurnCompleted, Reason: p.Turn.Status}
	switch p.Turn.Status {
	case "completed":
	case "interrupted":
		end.Status = driver.TurnInterrupted
	default:
		if p.Turn.Error != nil {
			failure = p.Turn.Error
		}
		if failure == nil {
			failure = &turnError{}
		}
		end = failure.end()
	}
	s.book.Finish(end)
}

// resolved takes back what was asked, unless it is resolved because it was answered.
func (s *session) resolved(p *params) {
	s.book.Withdraw(s.asks[string(p.Request)])
	delete(s.asks, string(p.Request))
}

func (s *session) failed(p *params) {
	if p.Error == nil {
		return
	}
	if !p.Again {
		s.failure = p.Error
		return
	}
	_, status := p.Error.name()
	s.retries++
	s.book.Tell(driver.ModelRetry, "", driver.RetryData{Attempt: s.retries, Status: status})
}

func (s *session) think(p *params) {
	if p.Delta != "" {
		s.thought[p.ItemID] = true
		s.book.Tell(driver.ReasoningDelta, p.ItemID, driver.TextData{Item: p.ItemID, Text: p.Delta})
	}
}

func (s *session) plan(p *params) {
	d := driver.PlanData{Steps: []driver.PlanStep{}}
	for _, step := range p.Plan {
		status := map[string]string{"inProgress": "running", "completed": "done"}[step.Status]
		if status == "" {
			status = "pending"
		}
		d.Steps = append(d.Steps, driver.PlanStep{Text: step.Step, Status: status})
	}
	s.book.Tell(driver.PlanUpdated, "", d)
}

// usage tells what the last request used. What is told of a thread that was resumed is old.
func (s *session) usage(p *params) {
	u := p.Usage.Last
	if s.book.Turn() == "" || u == (tokens{}) {
		return
	}
	s.book.Tell(driver.UsageTold, "", driver.UsageData{
		Input: max(0, u.Input-u.Cached-u.CacheMade), CacheRead: u.Cached, CacheWrite: u.CacheMade, Output: u.Output, Reasoning: u.Reasoning,
	})
	s.book.Tell(driver.ContextTold, "", driver.ContextData{Used: u.Total, Size: p.Usage.Window})
}

// maxChanges is the most items whose changes are remembered.
const maxChanges = 1000

func (s *session) remember(id string, list []change) {
	if len(list) > 0 && len(s.changes) < maxChanges {
		s.changes[id] = list
	}
}

func (s *session) started(i *item) {
	if i.Type == "fileChange" {
		s.remember(i.ID, i.Changes)
	}
	if d, ok := s.tool(i); ok {
		s.book.Tool(d)
	}
}

func (s *session) ended(i *item) {
	switch i.Type {
	case "agentMessage", "plan":
		s.book.Said(i.ID, i.ID, i.Text)
		return
	case "reasoning":
		if text := strings.Join(i.Summary, "\n\n"); text != "" && !s.thought[i.ID] {
			s.book.Tell(driver.ReasoningDelta, i.ID, driver.TextData{Item: i.ID, Text: text})
		}
		return
	case "contextCompaction":
		s.book.Tell(driver.Compaction, i.ID, nil)
		return
	case "subAgentActivity":
		state := "started"
		if i.Kind != "started" {
			state = "ended"
		}
		s.book.Tell(driver.Subagent, i.ID, driver.SubagentData{ID: i.Agent, State: state, Text: i.Kind})
		return
	}
	d, ok := s.tool(i)
	if !ok {
		return
	}
	d.Failed = i.Status == "failed" || i.Status == "declined" || i.Error != nil
	switch {
	case i.Output != nil:
		d.Output = *i.Output
	case i.Error != nil:
		d.Output = i.Error.Message
	case len(i.Result) > 0 && string(i.Result) != "null":
		d.Output = string(i.Result)
	}
	s.book.ToolDone(d)
	if i.Type == "fileChange" && i.Status == "completed" {
		for _, c := range i.Changes {
			s.changed(&c)
		}
	}
}

// changed tells of a file.
func (s *session) changed(c *change) {
	op := map[string]string{"add": "add", "delete": "delete"}[c.Kind.Type]
	if op == "" {
		op = "change"
	}
	if c.Kind.To != "" {
		s.book.Tell(driver.FileChanged, "", driver.FileData{Path: s.within(c.Path), Op: "delete"})
		s.book.Tell(driver.FileChanged, "", driver.FileData{Path: s.within(c.Kind.To), Op: "add"})
		return
	}
	s.book.Tell(driver.FileChanged, "", driver.FileData{Path: s.within(c.Path), Op: op})
}

// within is path as it is within the workspace, where it is there, else as an absolute one.
func (s *session) within(path string) string { return stdio.Within(s.dir, path) }

// tool is the call that an item is, if it is one.
func (s *session) tool(i *item) (driver.ToolData, bool) {
	d := driver.ToolData{ID: i.ID, Action: driver.ActionTool}
	var input any
	switch i.Type {
	case "commandExecution":
		command := unwrap(i.Command)
		d.Name, d.Action, d.Title, input = "shell", driver.ActionRun, firstLine(command), map[string]any{"command": command, "cwd": i.Cwd}
	case "fileChange":
		d.Name, d.Action, d.Title, input = "apply_patch", driver.ActionEdit, strings.Join(s.paths(i.Changes), ", "), map[string]any{"changes": i.Changes}
	case "mcpToolCall":
		d.Name, input = i.Server+"/"+i.Tool, i.Arguments
	case "dynamicToolCall":
		d.Name, input = i.Tool, i.Arguments
	case "collabAgentToolCall":
		d.Name, input = "agents/"+i.Tool, map[string]any{"prompt": i.Prompt}
	case "webSearch":
		d.Name, d.Action, d.Title, input = "web_search", driver.ActionFetch, i.Query, map[string]any{"query": i.Query}
	case "imageView":
		d.Name, d.Action, d.Title, input = "view_image", driver.ActionRead, i.Path, map[string]any{"path": s.within(i.Path)}
	default:
		return d, false
	}
	if input != nil {
		d.Input, _ = json.Marshal(input)
	}
	return d, d.ID != "" && d.Name != ""
}

// paths are the files that changes are of, each once.
func (s *session) paths(list []change) []string {
	out := []string{}
	for _, c := range list {
		for _, path := range []string{c.Path, c.Kind.To} {
			if path == "" {
				continue
			}
			if !filepath.IsAbs(path) {
				path = filepath.Join(s.dir, path)
			}
			if path = s.within(path); !slices.Contains(out, path) {
				out = append(out, path)
			}
		}
	}
	return out
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
