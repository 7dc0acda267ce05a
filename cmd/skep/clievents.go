package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// cliLine is the word and the text for what happened in a sandbox. What tells a person nothing, or is told by another event, has no text.
func cliLine(e agent.Event) (word, text string) {
	told := func(v any) bool { return json.Unmarshal(e.Data, v) == nil }
	var (
		session driver.SessionData
		tool    driver.ToolData
		line    driver.TextData
		file    driver.FileData
		plan    driver.PlanData
		proc    driver.ProcessData
		ask     driver.QuestionData
		retry   driver.RetryData
		sub     driver.SubagentData
		end     driver.TurnEnd
		raw     driver.UnparsedData
		box     agent.Sandbox
	)
	switch e.Name {
	case "sandbox":
		if told(&box) {
			return sandboxLine(box)
		}
	case driver.SessionStarted:
		if told(&session) {
			text = strings.TrimSpace(session.CLI+" "+session.Version) + ", model " + session.Model
			if session.Resumed {
				text += ", goes on with " + session.ID
			}
			return "cli", text
		}
	case driver.ToolStarted:
		if told(&tool) {
			return "does", or(tool.Title, tool.Name)
		}
	case driver.ToolEnded:
		if told(&tool) && tool.Failed {
			return "failed", strings.TrimSpace(or(tool.Title, tool.Name) + ": " + clip(tool.Output))
		}
	case driver.ToolOutput, driver.SetupOutput, driver.ExecOutput:
		if told(&line) {
			return "output", strings.TrimRight(line.Text, "\n")
		}
	case driver.FileChanged:
		if told(&file) {
			return "file", file.Op + " " + file.Path
		}
	case driver.PlanUpdated:
		if told(&plan) {
			return "plan", planText(plan)
		}
	case driver.QuestionAsked:
		if told(&ask) {
			return "asks", ask.Text
		}
	case driver.PermissionWithdrawn:
		return "cli", "needs no answer any more"
	case driver.ModelRetry:
		if told(&retry) {
			return "retry", fmt.Sprintf("the model, attempt %d, after status %d", retry.Attempt, retry.Status)
		}
	case driver.Subagent:
		if told(&sub) {
			return "subagent", sub.State + " " + sub.Text
		}
	case driver.Compaction:
		return "cli", "has summarized what was said before"
	case driver.OutOfMemory:
		return "memory", "something in the sandbox was ended for want of memory"
	case driver.CLIExited, driver.SetupEnded:
		if told(&proc) && (proc.Code != 0 || proc.Signal != "") {
			return "exited", exitText(proc)
		}
	case driver.TurnEnded:
		if told(&end) && end.Status != driver.TurnCompleted {
			text = end.Status
			if end.Fault != nil {
				text += ": " + end.Fault.Message
			} else if end.Reason != "" && end.Reason != end.Status {
				text += ": " + end.Reason
			}
			return "turn", text
		}
	case driver.DriverLog:
		if told(&line) {
			return "driver", line.Text
		}
	case driver.Unparsed:
		if told(&raw) {
			return "unknown", clip(raw.Raw)
		}
	}
	return "", ""
}

func exitText(p driver.ProcessData) string {
	how := fmt.Sprintf("%s, exit status %d", p.Name, p.Code)
	if p.Signal != "" {
		how = p.Name + ", by " + p.Signal
	}
	if p.OOM {
		how += ", out of memory"
	}
	if tail := strings.TrimSpace(p.Tail); tail != "" {
		how += "\n" + tail
	}
	return how
}

func planText(p driver.PlanData) string {
	done, now := 0, ""
	for _, s := range p.Steps {
		switch s.Status {
		case "done":
			done++
		case "running":
			now = ": " + s.Text
		}
	}
	return fmt.Sprintf("%d of %d done%s", done, len(p.Steps), now)
}

// sandboxLine tells where a sandbox stands; while it starts there is nothing to tell yet.
func sandboxLine(s agent.Sandbox) (word, text string) {
	switch s.State {
	case agent.SandboxReady:
		return "sandbox", fmt.Sprintf("%s is ready, of %s at %s", s.ID, s.Environment, s.Provider)
	case agent.SandboxLost, agent.SandboxFailed:
		text = fmt.Sprintf("%s is %s", s.ID, s.State)
		if s.Error != nil {
			text += ": " + s.Error.Msg
		}
		return "sandbox", text
	case agent.SandboxStopped:
		return "sandbox", fmt.Sprintf("%s is stopped", s.ID)
	}
	return "", ""
}
