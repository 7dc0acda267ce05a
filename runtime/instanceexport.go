package runtime

import (
	"bufio"
	"context"
	"encoding/json"
	"io"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

// ExportInstance writes an instance as NDJSON, one record a line, each with a "kind": "instance" first, then "state", "alarm", "event", and
// for each child what is written of it. Binary values are in Base64. What is changed meanwhile may be in it or not.
func (r *Runtime) ExportInstance(ctx context.Context, app agent.App, name, key string, w io.Writer) error {
	info, err := r.existing(ctx, app, name, key)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if err := r.exportInstance(ctx, info.ID, json.NewEncoder(out)); err != nil {
		return err
	}
	return out.Flush()
}

func (r *Runtime) exportInstance(ctx context.Context, id instance.ID, out *json.Encoder) error {
	name, err := r.nameOf(ctx, id)
	if err != nil {
		return err
	}
	what, err := r.InspectInstance(ctx, id.App, name.Agent, id.Key)
	if err != nil {
		return err
	}
	if err := out.Encode(struct {
		Kind string `json:"kind"`
		agent.Instance
	}{"instance", what}); err != nil {
		return err
	}
	for _, part := range []func(context.Context, instance.ID, *json.Encoder) error{r.exportState, r.exportAlarms, r.exportEvents} {
		if err := part(ctx, id, out); err != nil {
			return err
		}
	}
	for after := (instance.ID{}); ; {
		children, err := r.keeper.Store().Children(ctx, id, after, instance.MaxPage)
		if err != nil || len(children) == 0 {
			return err
		}
		for _, child := range children {
			if err := r.exportInstance(ctx, child, out); err != nil && agent.KindOf(err) != agent.NotFound { // deleted meanwhile, or not made yet
				return err
			}
		}
		after = children[len(children)-1]
	}
}

func (r *Runtime) exportState(ctx context.Context, id instance.ID, out *json.Encoder) error {
	for q := withoutOurs(agent.StateRange{Limit: agent.MaxPage}); ; {
		page, next, err := r.keeper.Store().Scan(ctx, id, q)
		if err != nil {
			return err
		}
		for _, e := range page {
			line := struct {
				Kind    string          `json:"kind"`
				Key     string          `json:"key"`
				Version int64           `json:"version"`
				Type    string          `json:"type"`
				JSON    json.RawMessage `json:"json,omitempty"`
				Text    string          `json:"text,omitempty"`
				Base64  []byte          `json:"base64,omitempty"`
			}{Kind: "state", Key: e.Key, Version: e.Version, Type: e.Value.Type}
			switch {
			case e.Value.IsJSON() && json.Valid(e.Value.Body):
				line.JSON = e.Value.Body
			case e.Value.IsText():
				line.Text = string(e.Value.Body)
			default:
				line.Base64 = e.Value.Body
			}
			if err := out.Encode(line); err != nil {
				return err
			}
		}
		if q.After = next; next == "" {
			return nil
		}
	}
}

func (r *Runtime) exportAlarms(ctx context.Context, id instance.ID, out *json.Encoder) error {
	name, err := r.nameOf(ctx, id)
	if err != nil {
		return err
	}
	for after := ""; ; {
		page, next, err := r.Alarms(ctx, id.App, name.Agent, id.Key, after, instance.MaxPage)
		if err != nil {
			return err
		}
		for _, a := range page {
			if err := out.Encode(struct {
				Kind string `json:"kind"`
				agent.Alarm
			}{"alarm", a}); err != nil {
				return err
			}
		}
		if after = next; next == "" {
			return nil
		}
	}
}

func (r *Runtime) exportEvents(ctx context.Context, id instance.ID, out *json.Encoder) error {
	for after := int64(0); ; {
		page, err := r.store.Read(ctx, store.InstanceLog(id, ownEvents), after, agent.MaxPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, ev := range page {
			if err := out.Encode(struct {
				Kind  string      `json:"kind"`
				Event agent.Event `json:"event"`
			}{"event", ev}); err != nil {
				return err
			}
		}
		after = page[len(page)-1].Seq
	}
}
