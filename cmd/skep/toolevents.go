package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// toolWords are the short words for events of tools and approvals.
var toolWords = map[agent.EventKind]string{
	agent.EventToolCalled: "tool", agent.EventToolReturned: "tool", agent.EventApprovalRequested: "approval", agent.EventApprovalAnswered: "approval",
}

// toolText says what an event of a tool or an approval tells, or "" when that is not understood. It is not made plain yet.
func toolText(e agent.Event) string {
	switch e.Kind {
	case agent.EventToolCalled:
		var u agent.ToolUse
		if json.Unmarshal(e.Data, &u) == nil && u.Decision != nil {
			return fmt.Sprintf("%s %s: %s, %s (%s)", u.Tool, phrase.Clip(compact(u.Args), 120), u.Decision.Verdict, u.Decision.Effect, u.Decision.Rule)
		}
	case agent.EventToolReturned:
		var u agent.ToolUse
		if json.Unmarshal(e.Data, &u) == nil {
			if u.Error != "" {
				return fmt.Sprintf("%s failed in %s: %s", u.Tool, howLong(u.Duration), u.Error)
			}
			return fmt.Sprintf("%s returned %d bytes in %s", u.Tool, u.Bytes, howLong(u.Duration))
		}
	case agent.EventApprovalRequested:
		var a agent.Approval
		if json.Unmarshal(e.Data, &a) == nil {
			return askedText(a)
		}
	case agent.EventApprovalAnswered:
		var a agent.ApprovalAnswered
		if json.Unmarshal(e.Data, &a) == nil {
			word := "denied"
			if a.Allow {
				word = "approved"
			}
			text := fmt.Sprintf("%s %s by %s", a.ID, word, a.By)
			if a.Reason != "" {
				text += ": " + a.Reason
			}
			return text
		}
	}
	return ""
}

// askedText says what a person is asked, and how to answer.
func askedText(a agent.Approval) string {
	if a.Asks != nil {
		return fmt.Sprintf("%s asks: %s\nskep approvals show %s", a.Asks.Server, a.Asks.Message, a.ID)
	}
	var lines []string
	if a.Title != "" {
		lines = append(lines, a.Title)
	}
	for _, c := range a.Calls {
		if c.Undo {
			lines = append(lines, fmt.Sprintf("undo, if a later call fails: %s %s", c.Tool, phrase.Clip(compact(c.Args), 200)))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s wants your approval: %s", c.Tool, phrase.Clip(compact(c.Args), 200), c.Decision.Reason))
	}
	return strings.Join(append(lines, fmt.Sprintf("skep approvals approve %s", a.ID)), "\n")
}
