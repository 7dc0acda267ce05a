package codex

import (
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// The part of the protocol's types that is used: see testdata/contract.json.
type (
	codexTurn struct {
		ID     string     `json:"id"`
		Status string     `json:"status"` // completed, interrupted, failed, inProgress
		Error  *turnError `json:"error"`
	}
	turnError struct {
		Message string          `json:"message"`
		Details string          `json:"additionalDetails"`
		Info    json.RawMessage `json:"codexErrorInfo"` // a name, or an object with one field of that name
	}
	change struct {
		Path string `json:"path"`
		Diff string `json:"diff"`
		Kind struct {
			Type string `json:"type"` // add, delete, update
			To   string `json:"move_path"`
		} `json:"kind"`
	}
	// item is a ThreadItem of any type.
	item struct {
		Type    string   `json:"type"`
		ID      string   `json:"id"`
		Text    string   `json:"text"`    // agentMessage, plan
		Summary []string `json:"summary"` // reasoning
		Status  string   `json:"status"`  // inProgress, completed, failed, declined

		Command string  `json:"command"` // commandExecution
		Cwd     string  `json:"cwd"`
		Output  *string `json:"aggregatedOutput"`

		Changes []change `json:"changes"` // fileChange

		Server    string          `json:"server"` // mcpToolCall
		Tool      string          `json:"tool"`   // and dynamicToolCall, collabAgentToolCall
		Arguments json.RawMessage `json:"arguments"`
		Result    json.RawMessage `json:"result"`
		Error     *struct {
			Message string `json:"message"`
		} `json:"error"`
		Prompt string `json:"prompt"` // collabAgentToolCall

		Query string `json:"query"` // webSearch
		Path  string `json:"path"`  // imageView

		Agent string `json:"agentThreadId"` // subAgentActivity
		Kind  string `json:"kind"`
	}
	tokens struct {
		Total     int64 `json:"totalTokens"`
		Input     int64 `json:"inputTokens"`
		Cached    int64 `json:"cachedInputTokens"`
		CacheMade int64 `json:"cacheWriteInputTokens"`
		Output    int64 `json:"outputTokens"`
		Reasoning int64 `json:"reasoningOutputTokens"`
	}
	// params are those of any notification.
	params struct {
		Thread string    `json:"threadId"`
		Item   item      `json:"item"`
		ItemID string    `json:"itemId"`
		Delta  string    `json:"delta"`
		Text   string    `json:"message"` // warning, item/mcpToolCall/progress
		Turn   codexTurn `json:"turn"`
		Plan   []struct {
			Step   string `json:"step"`
			Status string `json:"status"` // pending, inProgress, completed
		} `json:"plan"`
		Usage struct {
			Last   tokens `json:"last"`
			Window int64  `json:"modelContextWindow"`
		} `json:"tokenUsage"`
		Error   *turnError      `json:"error"`
		Again   bool            `json:"willRetry"`
		Changes []change        `json:"changes"`
		Request json.RawMessage `json:"requestId"`
		Summary string          `json:"summary"` // configWarning, deprecationNotice
	}
)

// name is the kind of an error, and the status that the gateway answered with, if one is told.
func (e *turnError) name() (name string, status int) {
	if json.Unmarshal(e.Info, &name) == nil {
		return name, 0
	}
	var object map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	if json.Unmarshal(e.Info, &object) == nil {
		for name, v := range object {
			return name, v.Status
		}
	}
	return "", 0
}

// errorKinds are what kinds of errors are in the vocabulary; what is not here has failed.
var errorKinds = map[string]struct {
	status string
	kind   agent.Kind
}{
	"contextWindowExceeded":          {driver.TurnLimit, agent.Exhausted},
	"sessionBudgetExceeded":          {driver.TurnLimit, agent.Exhausted},
	"usageLimitExceeded":             {driver.TurnLimit, agent.Exhausted},
	"rateLimitExceeded":              {driver.TurnFailed, agent.Exhausted},
	"flexUnavailable":                {driver.TurnFailed, agent.Unavailable},
	"serverOverloaded":               {driver.TurnFailed, agent.Unavailable},
	"internalServerError":            {driver.TurnFailed, agent.Unavailable},
	"httpConnectionFailed":           {driver.TurnFailed, agent.Unavailable},
	"responseStreamConnectionFailed": {driver.TurnFailed, agent.Unavailable},
	"responseStreamDisconnected":     {driver.TurnFailed, agent.Unavailable},
	"responseTooManyFailedAttempts":  {driver.TurnFailed, agent.Unavailable},
	"modelNotFound":                  {driver.TurnFailed, agent.NotFound},
	"unauthorized":                   {driver.TurnFailed, agent.Denied},
	"badRequest":                     {driver.TurnFailed, agent.Invalid},
	"cyberPolicy":                    {driver.TurnRefused, agent.Denied},
	"bioPolicy":                      {driver.TurnRefused, agent.Denied},
	"misalignmentPolicyViolation":    {driver.TurnRefused, agent.Denied},
}

// end is how a turn ended whose error is e.
func (e *turnError) end() driver.TurnEnd {
	name, _ := e.name()
	k, ok := errorKinds[name]
	if !ok {
		k.status, k.kind = driver.TurnFailed, agent.Failed
		if strings.HasPrefix(e.Message, "stream disconnected") { // when nobody answers where the gateway is, it says no more than that
			k.kind = agent.Unavailable
		}
	}
	text := e.Message
	if e.Details != "" {
		text += ": " + e.Details
	}
	if text == "" {
		text = "Codex does not say why"
	}
	return driver.TurnEnd{Status: k.status, Reason: name, Fault: &driver.Fault{Kind: k.kind, Message: text}}
}
