package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/skep-dev/skep/agent"
)

// UsageFilter says which usage is wanted. Empty fields mean the server's defaults: the last 30 days, all in one row.
type UsageFilter struct {
	From, To string // UTC days, as 2006-01-02, both included
	By       string // day, agent, kind, and of calls of models alone provider, model, route, user and key, separated by commas
	Agent    string
	ModelFilter
}

// ModelFilter says which calls of models are wanted; with one of the first five, no other usage is. NoAgent is for calls that have none.
type ModelFilter struct {
	Provider, Model, Route, User, Key string
	Session                           agent.SessionID
	Run                               agent.RunID
}

func (f ModelFilter) add(q query) query {
	q["provider"], q["model"], q["route"], q["user"], q["key"], q["session"], q["run"] = f.Provider, f.Model, f.Route, f.User, f.Key, string(f.Session), string(f.Run)
	return q
}

func (f UsageFilter) query(format string) query {
	return f.add(query{"from": f.From, "to": f.To, "by": f.By, "agent": f.Agent, "format": format})
}

// UsageReport is what an app used.
type UsageReport struct {
	From  string           `json:"from"`
	To    string           `json:"to"`
	Rows  []agent.UsageRow `json:"rows"`
	Total agent.UsageRow   `json:"total"`
}

// Usage adds up what the app's agents have used.
func (c *Client) Usage(ctx context.Context, f UsageFilter) (UsageReport, error) {
	return get[UsageReport](ctx, c, path("usage")+f.query("").encode())
}

// ExportUsage returns the same rows as csv or ndjson. The caller closes it.
func (c *Client) ExportUsage(ctx context.Context, f UsageFilter, format string) (io.ReadCloser, error) {
	res, err := c.send(ctx, "GET", path("usage")+f.query(format).encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// UsageEntry is one event of the ledger, with the cursor that goes on behind it.
type UsageEntry struct {
	Cursor string `json:"cursor"`
	agent.UsageEvent
}

// EventFilter says which events are wanted: the last day's unless it says otherwise.
type EventFilter struct {
	From, To string // RFC 3339; To is not included
	Agent    string
	After    string // cursor of the last event seen
	ModelFilter
}

// UsageEvents returns single usage events in the order in which they were written. An error ends the sequence; After goes on.
func (c *Client) UsageEvents(ctx context.Context, f EventFilter) iter.Seq2[UsageEntry, error] {
	return func(yield func(UsageEntry, error) bool) {
		q := f.add(query{"from": f.From, "to": f.To, "agent": f.Agent, "after": f.After})
		res, err := c.send(ctx, "GET", path("usage", "events")+q.encode(), nil, nil)
		if err != nil {
			yield(UsageEntry{}, err)
			return
		}
		defer res.Body.Close()
		lines := bufio.NewReader(res.Body)
		for {
			b, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) && len(b) == 0 {
				return
			}
			if err != nil {
				yield(UsageEntry{}, c.unreachable(ctx, err))
				return
			}
			if len(bytes.TrimSpace(b)) == 0 {
				continue
			}
			var e UsageEntry
			if err := json.Unmarshal(b, &e); err != nil {
				yield(e, agent.Wrap(agent.Internal, err, "the server's answer is not understood"))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// QuotaUses tells how much of their quotas the app and its agents use now.
func (c *Client) QuotaUses(ctx context.Context) ([]agent.QuotaUse, error) {
	l, err := get[List[agent.QuotaUse]](ctx, c, path("usage", "quotas"))
	return l.Items, err
}
