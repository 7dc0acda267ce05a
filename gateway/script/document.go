// Package script is a provider of models whose answers are written down before: turns of a script, which it tells in whatever protocol it is asked.
// docs/guide/scripted-models.md is about how to write one. The same requests get the same answers.
package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// Bounds of a script.
const (
	MaxScript = 16 << 20 // bytes
	MaxTurns  = 10_000
	maxDelay  = 10 * time.Minute
)

// Turn is one answer of a script.
type Turn struct {
	Match *Match `json:"match,omitempty"` // when it answers; by its place in the script unless set
	Reply *Reply `json:"reply,omitempty"`
	Fault *Fault `json:"fault,omitempty"` // an error in place of an answer, or in the middle of Reply
	Raw   *Raw   `json:"raw,omitempty"`   // a recorded answer
	Times int    `json:"times,omitempty"` // how often it answers the same request; a fault before a reply once unless set, all others always

	Cut   *int `json:"cut,omitempty"`   // the connection of a stream fails after so many events
	EOF   *int `json:"eof,omitempty"`   // a stream ends after so many events, as if it were whole
	Stall *int `json:"stall,omitempty"` // a stream falls silent after so many events
}

// Match says which requests a turn answers. Each field that is set must fit.
type Match struct {
	Model    string `json:"model,omitempty"`    // name, or pattern with * at its end
	Contains string `json:"contains,omitempty"` // text of the last message, or of the last result of a tool
	Tool     string `json:"tool,omitempty"`     // the last message is the result of this tool
	Nth      int    `json:"nth,omitempty"`      // it is answer N of the conversation, from 1
	Request  string `json:"request,omitempty"`  // the conversation is the very one that was recorded: a hash of what was said in it
}

// Reply is what a model says.
type Reply struct {
	Text      string `json:"text,omitempty"` // {{last}} stands for the last text or result that came in
	Reasoning string `json:"reasoning,omitempty"`
	Signature string `json:"signature,omitempty"` // opaque data of the reasoning
	Refusal   string `json:"refusal,omitempty"`
	Calls     []Call `json:"calls,omitempty"`
	Usage     *Usage `json:"usage,omitempty"` // a token for four bytes unless set
	Stop      string `json:"stop,omitempty"`  // stop, length, tool, filter or pause; as the rest has it unless set
	Delay     int    `json:"delay_ms,omitempty"`
	Pace      int    `json:"pace_ms,omitempty"` // between the events of a stream
	Chunk     int    `json:"chunk,omitempty"`   // bytes of text in an event of a stream; 24 unless set
}

// Call is a call of a tool.
type Call struct {
	ID   string          `json:"id,omitempty"` // made from the conversation unless set
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"` // an object
}

// Usage is what is said to have been used.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	Unknown    bool  `json:"unknown,omitempty"` // nothing is said
}

// Fault is an error.
type Fault struct {
	Status     int    `json:"status,omitempty"` // 500 unless set
	Type       string `json:"type,omitempty"`
	Code       string `json:"code,omitempty"`
	Message    string `json:"message,omitempty"`
	RetryAfter int    `json:"retry_after,omitempty"` // seconds
	After      *int   `json:"after,omitempty"`       // with a reply: after so many events of its stream
}

// Raw is a recorded answer, told as it is.
type Raw struct {
	Protocol agent.Protocol    `json:"protocol,omitzero"` // any unless set
	Status   int               `json:"status,omitempty"`  // 200 unless set
	Header   map[string]string `json:"header,omitempty"`
	Body     json.RawMessage   `json:"body,omitempty"`   // JSON, or a string with the bytes
	Frames   []string          `json:"frames,omitempty"` // a stream in pieces, in place of Body
}

// parse reads a script: a JSON object whose "turns" is a list, or JSON lines, each of them a turn.
func parse(text []byte) ([]Turn, error) {
	if len(text) > MaxScript {
		return nil, agent.Errorf(agent.Invalid, "the script is larger than %d bytes", MaxScript)
	}
	var whole struct {
		Turns []json.RawMessage `json:"turns"`
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &whole); err == nil && whole.Turns != nil {
		raw = whole.Turns
	} else {
		d := json.NewDecoder(bytes.NewReader(text))
		for {
			var m json.RawMessage
			err := d.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, agent.Errorf(agent.Invalid, "turn %d of the script is not JSON: %v", len(raw)+1, err)
			}
			raw = append(raw, m)
		}
	}
	switch {
	case len(raw) == 0:
		return nil, agent.Errorf(agent.Invalid, "the script has no turns")
	case len(raw) > MaxTurns:
		return nil, agent.Errorf(agent.Invalid, "the script has %d turns: %d are allowed", len(raw), MaxTurns)
	}
	turns := make([]Turn, len(raw))
	for i, m := range raw {
		d := json.NewDecoder(bytes.NewReader(m))
		d.DisallowUnknownFields()
		if err := d.Decode(&turns[i]); err != nil {
			return nil, agent.Errorf(agent.Invalid, "turn %d of the script cannot be read: %v", i+1, strings.TrimPrefix(err.Error(), "json: "))
		}
		if err := turns[i].check(); err != nil {
			return nil, agent.Errorf(agent.Invalid, "turn %d of the script: %v", i+1, err)
		}
	}
	return turns, nil
}

var stops = map[string]wire.Stop{
	"stop": wire.StopEnd, "sequence": wire.StopSequence, "length": wire.StopLength, "tool": wire.StopTool, "filter": wire.StopFilter, "pause": wire.StopPause,
}

func (t *Turn) check() error {
	switch {
	case t.Reply == nil && t.Fault == nil && t.Raw == nil:
		return errors.New("it has neither reply, fault nor raw")
	case t.Raw != nil && (t.Reply != nil || t.Fault != nil):
		return errors.New("raw stands alone")
	case t.Reply != nil && t.Fault != nil && t.Fault.After == nil:
		return errors.New("a fault beside a reply says after how many events, in after")
	case t.Fault != nil && t.Fault.Status != 0 && (t.Fault.Status < 400 || t.Fault.Status > 599):
		return fmt.Errorf("fault.status is %d: write one from 400 to 599", t.Fault.Status)
	case t.Times < 0:
		return errors.New("times is below 0")
	}
	if r := t.Reply; r != nil {
		if _, ok := stops[r.Stop]; !ok && r.Stop != "" {
			return fmt.Errorf("reply.stop is %.40q: write stop, sequence, length, tool, filter or pause", r.Stop)
		}
		for i, c := range r.Calls {
			if c.Name == "" {
				return fmt.Errorf("reply.calls[%d] has no name", i)
			}
			if args := bytes.TrimSpace(c.Args); len(args) > 0 && args[0] != '{' {
				return fmt.Errorf("reply.calls[%d].args is no object", i)
			}
		}
		if d := time.Duration(max(r.Delay, r.Pace)) * time.Millisecond; d > maxDelay || r.Delay < 0 || r.Pace < 0 {
			return fmt.Errorf("reply waits for longer than %s, or for less than nothing", maxDelay)
		}
	}
	return nil
}

// slot is what answers at one place of a conversation: faults that come first, and then the turn itself.
type slot struct {
	faults []int // indexes of turns
	turn   int   // -1 when there are only faults
}

// slots puts turns without a match in their places.
func slots(turns []Turn) (list []slot) {
	var faults []int
	for i := range turns {
		t := &turns[i]
		if t.Match != nil {
			continue
		}
		if t.Reply == nil && t.Raw == nil {
			faults = append(faults, i)
			continue
		}
		list = append(list, slot{slices.Clip(faults), i})
		faults = nil
	}
	if len(faults) > 0 {
		list = append(list, slot{faults, -1})
	}
	return list
}
