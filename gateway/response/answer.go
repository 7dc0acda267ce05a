package response

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// response is an answer. What clients read of it without having asked is there, empty.
type response struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Created    int64             `json:"created_at"`
	Status     string            `json:"status"`
	Background bool              `json:"background"`
	Error      *failure          `json:"error"`
	Incomplete *incomplete       `json:"incomplete_details"`
	Text       string            `json:"-"`
	System     *string           `json:"instructions"`
	MaxTokens  *int64            `json:"max_output_tokens"`
	Model      string            `json:"model"`
	Output     []json.RawMessage `json:"output"`
	Parallel   bool              `json:"parallel_tool_calls"`
	Previous   *string           `json:"previous_response_id"`
	Reasoning  struct {
		Effort  *string `json:"effort"`
		Summary *string `json:"summary"`
	} `json:"reasoning"`
	Tier        string            `json:"service_tier,omitempty"`
	Store       bool              `json:"store"`
	Temperature *float64          `json:"temperature"`
	Format      textOptions       `json:"text"`
	Choice      json.RawMessage   `json:"tool_choice"`
	Tools       []json.RawMessage `json:"tools"`
	TopP        *float64          `json:"top_p"`
	Truncation  string            `json:"truncation"`
	Usage       json.RawMessage   `json:"usage"`
	User        *string           `json:"user"`
	Metadata    map[string]string `json:"metadata"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

// responseTo makes what is the same in each state of the answer to r.
func responseTo(r *wire.Request) *response {
	x := &response{
		Object: "response", Output: []json.RawMessage{}, Parallel: true, Format: textOptions{Format: &format{Type: "text"}}, Choice: json.RawMessage(`"auto"`),
		Tools: []json.RawMessage{}, Truncation: "disabled", Metadata: map[string]string{}, Usage: json.RawMessage("null"),
	}
	if r == nil {
		return x
	}
	x.Model, x.MaxTokens, x.Temperature, x.TopP, x.Tier = r.Model, r.MaxTokens, r.Temperature, r.TopP, r.Tier
	if r.Parallel != nil {
		x.Parallel = *r.Parallel
	}
	if len(r.System) == 1 {
		x.System = &r.System[0].Text
	}
	if r.User != "" {
		x.User = &r.User
	}
	if len(r.Metadata) > 0 {
		x.Metadata = r.Metadata
	}
	if r.Reasoning != nil {
		if r.Reasoning.Effort != "" {
			x.Reasoning.Effort = &r.Reasoning.Effort
		}
		if r.Reasoning.Summary != "" {
			x.Reasoning.Summary = &r.Reasoning.Summary
		}
	}
	if r.Format != nil {
		x.Format.Format = formatOf(r.Format)
	}
	e := &encoding{thinks: true, custom: map[string]bool{}}
	for _, t := range r.Tools {
		if list, err := e.tools([]wire.Tool{t}); err == nil {
			x.Tools = append(x.Tools, list...)
		}
	}
	if c := e.choice(r.Choice); c != nil {
		x.Choice = c
	}
	return x
}

// settle sets how the answer ended.
func (x *response) settle(stop wire.Stop, refused bool, u wire.Usage) {
	x.Status = "completed"
	switch {
	case stop == wire.StopLength:
		x.Status, x.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
	case stop == wire.StopFilter && !refused:
		x.Status, x.Incomplete = "incomplete", &incomplete{"content_filter"}
	}
	if b := openai.ResponseUsage(u); b != nil {
		x.Usage = b
	}
}

func (codec) DecodeAnswer(body []byte, from wire.Origin) (*wire.Answer, error) {
	if !raw.Valid(body) {
		return nil, bad("the provider's answer is not valid JSON")
	}
	r := gjson.ParseBytes(body)
	if e := r.Get("error"); e.IsObject() {
		return nil, openai.StreamFault(r)
	}
	if !r.Get("output").IsArray() {
		return nil, bad("the provider's answer has no output")
	}
	a := &wire.Answer{
		ID: r.Get("id").String(), Model: r.Get("model").String(), Created: created(r), Usage: openai.Usage(r.Get("usage")), Tier: r.Get("service_tier").String(),
	}
	calls, refuses := false, false
	for i, v := range r.Get("output").Array() {
		field := fmt.Sprintf("output[%d]", i)
		var x item
		if err := openai.Unmarshal([]byte(v.Raw), &x); err != nil {
			return nil, bad("the provider's answer: %s: %s", field, agent.AsError(err).Msg)
		}
		parts, err := said(field, x, &from, nil)
		if err != nil {
			return nil, bad("the provider's answer: %s", agent.AsError(err).Msg)
		}
		for _, p := range parts {
			calls, refuses = calls || p.Kind == wire.CallPart, refuses || p.Kind == wire.RefusalPart
		}
		a.Parts = append(a.Parts, parts...)
	}
	switch status := r.Get("status").String(); status {
	case "failed", "cancelled":
		return nil, &wire.Fault{Class: agent.ServerFault, Message: "the provider's answer has the status " + status}
	}
	a.Stop = stopOf(r, calls, refuses)
	return a, nil
}

func created(r gjson.Result) time.Time {
	if n := r.Get("created_at"); n.Type == gjson.Number && n.Num > 0 && n.Num < 1<<40 {
		return time.Unix(int64(n.Num), 0).UTC()
	}
	return time.Time{}
}

// stopOf says why the model stopped, of a response that has ended.
func stopOf(r gjson.Result, calls, refuses bool) wire.Stop {
	switch r.Get("incomplete_details.reason").String() {
	case "max_output_tokens", "max_tokens":
		return wire.StopLength
	case "content_filter":
		return wire.StopFilter
	}
	switch {
	case r.Get("status").Str == "incomplete":
		return wire.StopLength
	case calls:
		return wire.StopTool
	case refuses:
		return wire.StopFilter
	}
	return wire.StopEnd
}

func (codec) EncodeAnswer(a *wire.Answer, r *wire.Request) ([]byte, error) {
	x := responseTo(r)
	x.ID, x.Created = idOf(a.ID), unix(a.Created)
	if a.Model != "" {
		x.Model = a.Model
	}
	if a.Tier != "" {
		x.Tier = a.Tier
	}
	refused := false
	for i, p := range a.Parts {
		switch p.Kind {
		case wire.TextPart, wire.RefusalPart:
			refused = refused || p.Kind == wire.RefusalPart
			x.Output = append(x.Output, openai.JSON(messageItem(newID(p, "msg_"), "completed", p)))
		case wire.ThoughtPart:
			s := ""
			if p.Thought != nil {
				s = wire.Seal(p.Thought)
			}
			x.Output = append(x.Output, openai.JSON(thoughtItem(newID(p, "rs_"), "completed", p.Text, s)))
		case wire.CallPart:
			if p.Call == nil {
				continue
			}
			if p.Thought != nil { // it has no place on a call
				x.Output = append(x.Output, openai.JSON(thoughtItem(signID(p.Item), "completed", "", wire.SealCall(p.Thought, p.Call.ID))))
			}
			c := callTo(*p.Call, r)
			x.Output = append(x.Output, openai.JSON(callItem(newID(p, callPrefix(c)), "completed", c)))
		default:
			return nil, bad("parts[%d]: media cannot be an answer in responses", i)
		}
	}
	x.settle(a.Stop, refused, a.Usage)
	return openai.Marshal(x)
}

// callTo is a call as the client that asked r knows it: of a custom tool, if that is what it offered.
func callTo(c wire.ToolCall, r *wire.Request) wire.ToolCall {
	switch {
	case c.Custom:
	case offersCustom(r, c.Name):
		c.Custom, c.Args = true, wire.UnwrapCustom(c.Args)
	case c.Args == "":
		c.Args = "{}"
	}
	return c
}

func offersCustom(r *wire.Request, name string) bool {
	if r != nil {
		for _, t := range r.Tools {
			if t.Name == name {
				return t.Custom
			}
		}
	}
	return false
}

func callPrefix(c wire.ToolCall) string {
	if c.Custom {
		return "ctc_"
	}
	return "fc_"
}

func newID(p wire.Part, prefix string) string {
	switch {
	case p.Item == "":
		return openai.NewID(prefix)
	case strings.Contains(p.Item, "_"):
		return p.Item
	}
	return prefix + p.Item
}

// signID is the id of the item that holds what sits on the call of the item id.
func signID(id string) string {
	if id == "" {
		return openai.NewID("rs_")
	}
	return "rs_" + id + wire.SignItem
}

func idOf(id string) string {
	if id == "" {
		return openai.NewID("resp_")
	}
	return id
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		t = time.Now()
	}
	return t.Unix()
}
