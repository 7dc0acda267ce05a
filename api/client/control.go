package client

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
)

// JournalEntry is an entry of a run's journal: what the run asked of its host, and what it got.
type JournalEntry struct {
	Seq    int64           `json:"seq"`
	Kind   string          `json:"kind"` // "begin", "start", "done", "deliver", "timer", "event", "snapshot", "commit", "end", ...
	Time   time.Time       `json:"time"`
	Call   uint64          `json:"call,omitempty"`
	Name   string          `json:"name,omitempty"`   // of the call
	Input  json.RawMessage `json:"input,omitempty"`  // what a call asked for: up to 160 bytes, as text
	Output json.RawMessage `json:"output,omitempty"` // clipped
	Error  *agent.RunError `json:"error,omitempty"`
	Class  string          `json:"class,omitempty"` // pure, read, own, inside, wait, idempotent, once
	Bytes  int64           `json:"bytes,omitempty"`
	Life   int             `json:"life,omitempty"`
}

// Journal returns entries of a run's journal, those after the one numbered after.
func (c *Client) Journal(ctx context.Context, id agent.RunID, p agent.Page) (List[JournalEntry], error) {
	return get[List[JournalEntry]](ctx, c, path("runs", string(id), "journal")+pageQuery(p).encode())
}

// SendEvent brings an event to a run that waits for it, or will. data is any JSON value; nil means null. With a key that was used
// before for this run the event is not brought again.
func (c *Client) SendEvent(ctx context.Context, id agent.RunID, eventType, key string, data json.RawMessage) (out agent.Run, err error) {
	h := once()
	if key != "" {
		h["Idempotency-Key"] = key
	}
	var in any
	if data != nil {
		in = data
	}
	return out, c.do(ctx, "POST", path("runs", string(id), "events", eventType), h, in, &out)
}

// PauseRuns holds runs where they next come to rest.
func (c *Client) PauseRuns(ctx context.Context, ids ...agent.RunID) ([]agent.Run, error) {
	return c.control(ctx, "pause", ids)
}

// ResumeRuns lets paused runs go on.
func (c *Client) ResumeRuns(ctx context.Context, ids ...agent.RunID) ([]agent.Run, error) {
	return c.control(ctx, "resume", ids)
}

// TerminateRuns ends runs by way of their rollbacks.
func (c *Client) TerminateRuns(ctx context.Context, ids ...agent.RunID) ([]agent.Run, error) {
	return c.control(ctx, "terminate", ids)
}

func (c *Client) control(ctx context.Context, what string, ids []agent.RunID) ([]agent.Run, error) {
	var out List[agent.Run]
	err := c.do(ctx, "POST", path("runs", what), nil, map[string]any{"ids": ids}, &out)
	return out.Items, err
}

// RestartRun starts a new run that goes on from where a step of another began; an empty step is the beginning. With newCode it runs what its
// agent runs now, which has to do the same up to the step.
func (c *Client) RestartRun(ctx context.Context, id agent.RunID, step string, newCode bool) (out agent.Run, err error) {
	in := struct {
		Step    string `json:"step,omitempty"`
		NewCode bool   `json:"new_code,omitempty"`
	}{step, newCode}
	return out, c.do(ctx, "POST", path("runs", string(id), "restart"), nil, in, &out)
}

// Resolution says what became of a call whose effect is not known. Action is "retry", "answer" with Output, or "fail" with Error.
type Resolution struct {
	Call   uint64          `json:"call"`
	Action string          `json:"action"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// ResolveRun lets an uncertain run go on.
func (c *Client) ResolveRun(ctx context.Context, id agent.RunID, r Resolution) (out agent.Run, err error) {
	return out, c.do(ctx, "POST", path("runs", string(id), "resolve"), nil, r, &out)
}

// ExportRun writes a run, its events and its journal to w, one JSON record a line, clean of secrets.
func (c *Client) ExportRun(ctx context.Context, id agent.RunID, w io.Writer) error {
	return c.copy(ctx, path("runs", string(id), "export"), "export", w)
}

// Replay is what came of playing a run again.
type Replay struct {
	Same       bool              `json:"same"`
	Calls      int               `json:"calls"` // that were compared
	Output     *agent.Payload    `json:"output,omitempty"`
	Error      *agent.RunError   `json:"error,omitempty"`
	Difference *ReplayDifference `json:"difference,omitempty"`
	Complete   bool              `json:"complete"` // whether the run had ended; else it was played as far as its journal goes
}

// ReplayDifference is where the two first differ. Call is 0 for the result.
type ReplayDifference struct {
	Call uint64 `json:"call,omitempty"`
	Was  string `json:"was"`
	Now  string `json:"now"`
}

// ReplayRun plays a run again, offline, with a plugin's code; its own when the reference is empty.
func (c *Client) ReplayRun(ctx context.Context, id agent.RunID, plugin string) (out Replay, err error) {
	in := map[string]string{}
	if plugin != "" {
		in["plugin"] = plugin
	}
	return out, c.do(ctx, "POST", path("runs", string(id), "replay"), nil, in, &out)
}

// ReplayRunWith plays a run again with code that is not stored. The upload's name and version are of no use.
func (c *Client) ReplayRunWith(ctx context.Context, id agent.RunID, u Upload) (out Replay, err error) {
	h := header{"Content-Type": u.Type}
	if u.Type == "" {
		h["Content-Type"] = agent.TypeBytes
	}
	res, err := c.send(ctx, "POST", path("runs", string(id), "replay")+query{"filename": u.Filename}.encode(), h, u.Body)
	if err != nil {
		return out, err
	}
	return out, c.decode(ctx, res, &out)
}
