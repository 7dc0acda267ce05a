package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// callTool answers tools/call of a tool of the catalogue: a run that calls it.
func (d *door) callTool(name string) sdk.ToolHandler {
	return d.runs(func(ctx context.Context, args json.RawMessage) (agent.Run, error) {
		run, _, err := d.h.rt.StartTool(ctx, d.key.app, runtime.ToolRun{Agent: d.key.Agent, Tool: name, Args: args}, store.Once{})
		return run, err
	}, d.toolResult)
}

// shaper makes a result of a run that has completed.
type shaper func(ctx context.Context, f *follower, run agent.Run) *sdk.CallToolResult

// runs answers tools/call with what became of a run. A client that comes back with a state goes on with the run that it is of.
func (d *door) runs(start func(context.Context, json.RawMessage) (agent.Run, error), shape shaper) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		args, err := object(req.Params.Arguments)
		if err != nil {
			return nil, err
		}
		f := &follower{door: d, req: req, carried: d.carry(req.Extra, "tools/call "+req.Params.Name, args)}
		if req.Params.RequestState != "" {
			if f.carried, err = d.h.seal.open(req.Params.RequestState, f.carried); err != nil {
				return nil, err
			}
			if f.run, err = d.h.st.Run(ctx, d.key.app, f.carried.Run); err != nil {
				return failed(err), nil
			}
			f.asked = true
			if refused(req.Params.InputResponses) {
				return f.giveUp(ctx), nil
			}
		} else if f.run, err = start(ctx, args); err != nil {
			return failed(err), nil
		}
		return f.follow(ctx, shape), nil
	}
}

// carry is what a state of a request says: what is its method and what that is about, args are nil when it has none.
func (d *door) carry(extra *sdk.RequestExtra, what string, args []byte) carried {
	c := carried{Who: callerOf(extra).Token.ID, Door: d.key.String(), What: what}
	if args != nil {
		c.Args = digest(args)
	}
	return c
}

// digest is the same for the same JSON value, however it is written.
func digest(b []byte) [32]byte {
	var v any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if dec.Decode(&v) == nil {
		b = encode(v)
	}
	return sha256.Sum256(b)
}

// object returns arguments as a JSON object.
func object(b json.RawMessage) (json.RawMessage, error) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || string(b) == "null" {
		return json.RawMessage("{}"), nil
	}
	if b[0] != '{' || !json.Valid(b) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "arguments must be a JSON object"}
	}
	return b, nil
}

// refused reports whether a person declined one of the things that were asked.
func refused(answers sdk.InputResponseMap) bool {
	for _, a := range answers {
		if e, ok := a.(*sdk.ElicitResult); ok && e.Action == "decline" {
			return true
		}
	}
	return false
}

// cancelTime is how long a run may take to end that was cancelled.
const cancelTime = 10 * time.Second

// cancel cancels a run that nobody waits for any more.
func (d *door) cancel(ctx context.Context, id agent.RunID) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	if _, err := d.h.rt.Cancel(ctx, d.key.app, id); err != nil {
		d.h.o.Log.WarnContext(ctx, "mcp: a run that its client gave up was not cancelled", "run", id, "err", err)
	}
}
