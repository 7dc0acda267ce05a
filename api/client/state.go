package client

import (
	"context"
	"io"
	"strconv"

	"github.com/skep-dev/skep/agent"
)

// StateList is one page of an agent's state, the cursor of the next, "" after the last, and what the whole state holds.
type StateList struct {
	List[agent.StateEntry]
	Size agent.StateSize `json:"size"`
}

// ListState lists keys of an agent's state in their order.
func (c *Client) ListState(ctx context.Context, name string, r agent.StateRange) (StateList, error) {
	q := query{"prefix": r.Prefix, "start": r.Start, "end": r.End, "after": r.After}
	if r.Reverse {
		q["reverse"] = "true"
	}
	if r.Limit != 0 {
		q["limit"] = strconv.Itoa(r.Limit)
	}
	return get[StateList](ctx, c, path("agents", name, "state")+q.encode())
}

// State returns one key of an agent's state.
func (c *Client) State(ctx context.Context, name, key string) (e agent.StateEntry, err error) {
	res, err := c.send(ctx, "GET", path("agents", name, "state", key), nil, nil)
	if err != nil {
		return e, err
	}
	defer res.Body.Close()
	e = agent.StateEntry{Key: key, Value: agent.Payload{Type: res.Header.Get("Content-Type")}}
	e.Version, _ = strconv.ParseInt(res.Header.Get("Skep-Version"), 10, 64)
	if e.Value.Body, err = io.ReadAll(res.Body); err != nil {
		return e, c.unreachable(ctx, err)
	}
	return e, nil
}

// SetState sets a key of an agent's state and returns its version. The key must have the version that ifVersion points to, if
// that is not nil; 0 means that it must not be there.
func (c *Client) SetState(ctx context.Context, name, key string, v agent.Payload, ifVersion *int64) (version int64, err error) {
	res, err := c.send(ctx, "PUT", path("agents", name, "state", key)+versionQuery(ifVersion), header{"Content-Type": v.Type}, v.Body)
	if err != nil {
		return 0, err
	}
	var out struct {
		Version int64 `json:"version"`
	}
	err = c.decode(ctx, res, &out)
	return out.Version, err
}

// DeleteState deletes a key of an agent's state. One that is not there is no error, unless ifVersion says that it should be.
func (c *Client) DeleteState(ctx context.Context, name, key string, ifVersion *int64) error {
	return c.do(ctx, "DELETE", path("agents", name, "state", key)+versionQuery(ifVersion), nil, nil, nil)
}

func versionQuery(v *int64) string {
	if v == nil {
		return ""
	}
	return query{"if_version": strconv.FormatInt(*v, 10)}.encode()
}
