package client

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
)

// CallInstance calls a method of an instance, which is made when it is not there. A timeout above 0 narrows the agent's limit on
// wall time. The server goes on with a call whose ctx has ended, up to that limit.
func (c *Client) CallInstance(ctx context.Context, agentName, key, method string, in agent.Payload, timeout time.Duration) (agent.Payload, agent.Usage, error) {
	return c.CallInstanceOnce(ctx, agentName, key, method, "", in, timeout)
}

// CallInstanceOnce is CallInstance under a name of the caller's own: made again with it within a day, the call answers as it did the
// first time, and has no second effect. "" is no name.
func (c *Client) CallInstanceOnce(
	ctx context.Context, agentName, key, method, once string, in agent.Payload, timeout time.Duration,
) (agent.Payload, agent.Usage, error) {
	return c.call(ctx, path("agents", agentName, "instances", key, "call", method), once, in, timeout)
}

// StreamInstance calls a method of an instance and gives each what it yields, item by item, as it comes. It returns what the method
// returns, null for most generators. in is JSON or text. Of a call that fails in the middle, what was done before the newest item
// stays done. When ctx ends or each returns an error the call is ended.
func (c *Client) StreamInstance(
	ctx context.Context, agentName, key, method string, in agent.Payload, timeout time.Duration, each func(item json.RawMessage) error,
) (json.RawMessage, error) {
	h := header{"Content-Type": in.Type, "Accept": typeNDJSON}
	if timeout > 0 {
		h["Skep-Timeout"] = timeout.String()
	}
	res, err := c.send(ctx, "POST", path("agents", agentName, "instances", key, "call", method), h, in.Body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	for lines := json.NewDecoder(res.Body); ; {
		var line struct {
			Item   json.RawMessage `json:"item"`
			Result json.RawMessage `json:"result"`
			Error  *problem        `json:"error"`
		}
		switch err := lines.Decode(&line); {
		case err != nil && ctx.Err() != nil:
			return nil, c.unreachable(ctx, err)
		case err != nil:
			return nil, agent.Wrap(agent.Unavailable, err, "the connection ended before the call did: it may have taken effect")
		case line.Error != nil && line.Error.Kind != nil:
			return nil, line.Error.error(0)
		case line.Item == nil:
			return line.Result, nil
		}
		if err := each(line.Item); err != nil {
			return nil, err
		}
	}
}

// Instances lists an agent's instances in the order of their keys.
func (c *Client) Instances(ctx context.Context, agentName string, p agent.Page) (List[agent.Instance], error) {
	return get[List[agent.Instance]](ctx, c, path("agents", agentName, "instances")+pageQuery(p).encode())
}

// Instance returns one instance.
func (c *Client) Instance(ctx context.Context, agentName, key string) (agent.Instance, error) {
	return get[agent.Instance](ctx, c, path("agents", agentName, "instances", key))
}

// DeleteInstances deletes instances with all that is theirs.
func (c *Client) DeleteInstances(ctx context.Context, agentName string, keys ...string) error {
	return c.do(ctx, "POST", path("agents", agentName, "instances", "delete"), nil, map[string]any{"keys": keys}, nil)
}

// ExportInstance writes an instance's state, alarms, children and events to w, one JSON record a line.
func (c *Client) ExportInstance(ctx context.Context, agentName, key string, w io.Writer) error {
	return c.copy(ctx, path("agents", agentName, "instances", key, "export"), "export", w)
}

// InstanceLog is what an instance did and emitted outside of sessions.
func InstanceLog(agentName, key string) Log {
	return Log{target: path("agents", agentName, "instances", key, "events")}
}

// Alarms lists an instance's alarms, dead letters too, in the order of their names.
func (c *Client) Alarms(ctx context.Context, agentName, key string, p agent.Page) (List[agent.Alarm], error) {
	return get[List[agent.Alarm]](ctx, c, path("agents", agentName, "instances", key, "alarms")+pageQuery(p).encode())
}

// DeadLetters lists the alarms that failed for the last time, of all instances of an agent. A page has all of its last instance.
func (c *Client) DeadLetters(ctx context.Context, agentName string, p agent.Page) (List[agent.Alarm], error) {
	return get[List[agent.Alarm]](ctx, c, path("agents", agentName, "alarms", "dead")+pageQuery(p).encode())
}

// DeleteAlarm takes an alarm back, or drops a dead letter.
func (c *Client) DeleteAlarm(ctx context.Context, agentName, key, alarm string) error {
	return c.do(ctx, "DELETE", path("agents", agentName, "instances", key, "alarms", alarm), nil, nil, nil)
}

// RetryAlarm makes a dead letter due now, with all its attempts.
func (c *Client) RetryAlarm(ctx context.Context, agentName, key, alarm string) (out agent.Alarm, err error) {
	return out, c.do(ctx, "POST", path("agents", agentName, "instances", key, "alarms", alarm, "retry"), nil, nil, &out)
}

// copy writes the body of an answer to w. What came when it returns an error is not whole.
func (c *Client) copy(ctx context.Context, target, what string, w io.Writer) error {
	res, err := c.send(ctx, "GET", target, nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		if ctx.Err() != nil {
			return c.unreachable(ctx, err)
		}
		return &agent.Error{Kind: agent.Internal, Msg: "the " + what + " broke off", Err: err, Hint: "the server's log says why"}
	}
	return nil
}
