package main

import (
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// durableWords are the short words for events of durable agents.
var durableWords = map[agent.EventKind]string{
	agent.EventRunWaiting: "waiting", agent.EventRunResumed: "resumed", agent.EventRunPaused: "paused", agent.EventRunUncertain: "uncertain",
	agent.EventReceived: "received", agent.EventStepStarted: "step", agent.EventStepEnded: "step", agent.EventStateChanged: "state",
	agent.EventCreated: "created", agent.EventUpgraded: "upgraded", agent.EventAlarmFired: "alarm", agent.EventAlarmFailed: "alarm",
	agent.EventConnected: "connected", agent.EventDisconnected: "closed",
}

// durableText says what an event of a durable agent tells, or "" when that is not understood.
func durableText(e agent.Event) string {
	switch e.Kind {
	case agent.EventReceived:
		return shownKey(e.Name) + " " + compact(e.Data)
	case agent.EventStateChanged:
		var s agent.StateChange
		if json.Unmarshal(e.Data, &s) == nil {
			return fmt.Sprintf("version %d: %s", s.Version, compact(s.Patch))
		}
	case agent.EventStepStarted, agent.EventStepEnded:
		var s agent.Step
		if json.Unmarshal(e.Data, &s) == nil {
			return stepText(e, s)
		}
	case agent.EventAlarmFired, agent.EventAlarmFailed:
		var a agent.AlarmFired
		if json.Unmarshal(e.Data, &a) == nil {
			return alarmText(e, a)
		}
	}
	return ""
}

func stepText(e agent.Event, s agent.Step) string {
	text := shownKey(e.Name)
	if s.Rollback {
		text = "rollback of " + text
	}
	switch {
	case e.Kind == agent.EventStepStarted && s.Attempt > 1:
		text += fmt.Sprintf(" began, attempt %d", s.Attempt)
	case e.Kind == agent.EventStepStarted:
		text += " began"
	case s.Error != "":
		text += " failed"
	default:
		text += " ended"
	}
	if s.Duration > 0 {
		text += " in " + howLong(s.Duration)
	}
	if s.Error != "" {
		text += ": " + s.Error
	}
	return text
}

func alarmText(e agent.Event, a agent.AlarmFired) string {
	text := shownKey(e.Name) + ", due " + when(a.Due)
	if a.Missed > 0 {
		text += fmt.Sprintf(", for %d more that were missed", a.Missed)
	}
	if a.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", a.Attempt)
	}
	switch {
	case e.Kind == agent.EventAlarmFailed:
		text += ", failed for the last time: " + a.Error
	case a.Error != "":
		text += ", failed: " + a.Error
	}
	return text
}
