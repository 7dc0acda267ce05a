package client

import (
	"context"
	"encoding/json"
	"io"

	"github.com/skep-dev/skep/agent"
)

// Journal returns entries of a run's journal, those after the one numbered after.
func (c *Client) Journal(ctx context.Context, id agent.RunID, p agent.Page) (List[agent.JournalEntry], error) {
	return get[List[agent.JournalEntry]](ctx, c, path("runs", string(id), "journal")+pageQuery(p).encode())
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

// ResolveRun lets an uncertain run go on.
func (c *Client) ResolveRun(ctx context.Context, id agent.RunID, r agent.Resolution) (out agent.Run, err error) {
	return out, c.do(ctx, "POST", path("runs", string(id), "resolve"), nil, r, &out)
}

// ExportRun writes a run, its events and its journal to w, one JSON record a line, clean of secrets.
func (c *Client) ExportRun(ctx context.Context, id agent.RunID, w io.Writer) error {
	return c.copy(ctx, path("runs", string(id), "export"), "export", w)
}

// ReplayRun plays a run again, offline, with a plugin's code; its own when the reference is empty.
func (c *Client) ReplayRun(ctx context.Context, id agent.RunID, plugin string) (out agent.Replay, err error) {
	in := map[string]string{}
	if plugin != "" {
		in["plugin"] = plugin
	}
	return out, c.do(ctx, "POST", path("runs", string(id), "replay"), nil, in, &out)
}

// ReplayRunWith plays a run again with code that is not stored. The upload's name and version are of no use.
func (c *Client) ReplayRunWith(ctx context.Context, id agent.RunID, u Upload) (out agent.Replay, err error) {
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
