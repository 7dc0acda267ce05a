package claude

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// outcome is the frame that ends a turn.
type outcome struct {
	Subtype  string              `json:"subtype"`
	IsError  bool                `json:"is_error"`
	Result   string              `json:"result"`
	Errors   []string            `json:"errors"`
	Status   int                 `json:"api_error_status"`
	Terminal string              `json:"terminal_reason"`
	Stop     string              `json:"stop_reason"`
	Message  string              `json:"user_message_uuid"`
	Messages []string            `json:"user_message_uuids"`
	Models   map[string]modelUse `json:"modelUsage"`
}

// modelUse is what a model was asked for since the CLI has started.
type modelUse struct {
	Input      int64   `json:"inputTokens"`
	Output     int64   `json:"outputTokens"`
	CacheRead  int64   `json:"cacheReadInputTokens"`
	CacheWrite int64   `json:"cacheCreationInputTokens"`
	Dollars    float64 `json:"costUSD"`
	Window     int64   `json:"contextWindow"`
}

// result ends the turn, unless it is of one that nobody has asked for, such as when a command in the background has ended.
func (s *session) result(line []byte) bool {
	var o outcome
	if json.Unmarshal(line, &o) != nil {
		return false
	}
	s.said.close(s)
	s.usage(&o)
	s.mu.Lock()
	ours := o.Message == "" || o.Message == s.message || slices.Contains(o.Messages, s.message)
	cut := s.cut
	s.mu.Unlock()
	if ours {
		s.Finish(o.end(cut, s.said.refused))
		s.said.refused = false
	}
	return true
}

// usage tells what was used since the last result.
func (s *session) usage(o *outcome) {
	var window int64
	for _, name := range slices.Sorted(maps.Keys(o.Models)) {
		m, was := o.Models[name], s.said.models[name]
		s.said.models[name] = m
		window = max(window, m.Window)
		u := driver.UsageData{
			Model: name, Input: m.Input - was.Input, Output: m.Output - was.Output, CacheRead: m.CacheRead - was.CacheRead, CacheWrite: m.CacheWrite - was.CacheWrite,
			Dollars: m.Dollars - was.Dollars,
		}
		if u.Input > 0 || u.Output > 0 || u.CacheRead > 0 || u.CacheWrite > 0 {
			s.Tell(driver.UsageTold, "", u)
		}
	}
	if s.said.context > 0 && window > 0 {
		s.Tell(driver.ContextTold, "", driver.ContextData{Used: s.said.context, Size: window})
	}
}

// end is how a turn has ended. A subtype of success says nothing by itself: an answer of the API that is an error has it, too.
func (o *outcome) end(cut, refused bool) driver.TurnEnd {
	e := driver.TurnEnd{Reason: o.Terminal}
	if e.Reason == "" || e.Reason == "completed" && o.Subtype != "success" {
		e.Reason = o.Subtype
	}
	switch {
	case strings.HasPrefix(o.Terminal, "aborted") || cut && o.Subtype == "error_during_execution":
		e.Status = driver.TurnInterrupted
	case refused || o.Stop == "refusal":
		e.Status, e.Text = driver.TurnRefused, o.Result
	case o.limit():
		e.Status, e.Text = driver.TurnLimit, o.Result
	case o.Subtype == "success" && !o.IsError:
		e.Status, e.Text = driver.TurnCompleted, o.Result
	default:
		e.Status, e.Fault = driver.TurnFailed, o.fault()
	}
	return e
}

func (o *outcome) limit() bool {
	switch o.Terminal {
	case "max_turns", "budget_exhausted", "prompt_too_long", "blocking_limit":
		return true
	}
	return o.Subtype == "error_max_turns" || o.Subtype == "error_max_budget_usd"
}

// fault says what went wrong, by the status that the gateway has answered with.
func (o *outcome) fault() *driver.Fault {
	f := &driver.Fault{Kind: agent.Failed, Message: strings.TrimSpace(o.Result)}
	if f.Message == "" {
		f.Message = strings.Join(o.Errors, "; ")
	}
	if f.Message == "" {
		f.Message = "Claude Code says no more than " + o.Subtype
	}
	switch {
	case o.Status != 0:
		f.Kind = stdio.StatusKind(o.Status)
	case o.Terminal == "api_error":
		f.Kind = agent.Unavailable
	}
	if f.Kind == agent.Unavailable {
		f.Hint = stdio.TryLater
	}
	return f
}
