package client

import (
	"context"
	"io"
	"net/url"
	"strconv"

	"github.com/skep-dev/skep/agent"
)

// StateList is one page of a state, the cursor of the next, "" after the last, and what the whole state holds.
type StateList struct {
	List[agent.StateEntry]
	Size agent.StateSize `json:"size"`
}

// Place is where a state is: that of an agent, or that of an instance. It is comparable.
type Place struct{ target string }

// AgentState is the state that all cells of an agent share.
func AgentState(name string) Place { return Place{path("agents", name, "state")} }

// Storage is the state of one instance.
func Storage(name, key string) Place { return Place{path("agents", name, "instances", key, "storage")} }

func (p Place) entry(key string) string { return p.target + "/" + url.PathEscape(key) }

// ListState lists keys of a state in their order.
func (c *Client) ListState(ctx context.Context, p Place, r agent.StateRange) (StateList, error) {
	q := query{"prefix": r.Prefix, "start": r.Start, "end": r.End, "after": r.After}
	if r.Reverse {
		q["reverse"] = "true"
	}
	if r.Limit != 0 {
		q["limit"] = strconv.Itoa(r.Limit)
	}
	return get[StateList](ctx, c, p.target+q.encode())
}

// State returns one key of a state.
func (c *Client) State(ctx context.Context, p Place, key string) (e agent.StateEntry, err error) {
	res, err := c.send(ctx, "GET", p.entry(key), nil, nil)
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

// SetState sets a key of a state and returns its version. The key must have the version that ifVersion points to, if
// that is not nil; 0 means that it must not be there.
func (c *Client) SetState(ctx context.Context, p Place, key string, v agent.Payload, ifVersion *int64) (version int64, err error) {
	res, err := c.send(ctx, "PUT", p.entry(key)+versionQuery(ifVersion), header{"Content-Type": v.Type}, v.Body)
	if err != nil {
		return 0, err
	}
	var out struct {
		Version int64 `json:"version"`
	}
	err = c.decode(ctx, res, &out)
	return out.Version, err
}

// DeleteState deletes a key of a state. One that is not there is no error, unless ifVersion says that it should be.
func (c *Client) DeleteState(ctx context.Context, p Place, key string, ifVersion *int64) error {
	return c.do(ctx, "DELETE", p.entry(key)+versionQuery(ifVersion), nil, nil, nil)
}

func versionQuery(v *int64) string {
	if v == nil {
		return ""
	}
	return query{"if_version": strconv.FormatInt(*v, 10)}.encode()
}
