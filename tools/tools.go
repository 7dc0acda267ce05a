// Package tools is the catalogue of tools: where they come from, what each can do, who may call it, and the calling of it.
//
// A Source is a server of tools, such as one that speaks MCP (package tools/mcp). The catalogue opens sources from the records of an app, keeps
// their lists, grades their tools and judges calls by the app's policy (package tools/policy). It does not check grants and keeps no journal:
// package runtime does, before it asks here.
package tools

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
)

// Source is one server of tools, of one app. It is safe for concurrent use.
type Source interface {
	// Tools lists its tools, without Name, Server, Effect, By and Changed; Hints says what it says of their effects. It starts the server when it is not
	// running. The order means nothing.
	Tools(ctx context.Context) ([]Offer, error)
	// Call calls one. An error of the tool itself is of kind Failed, with the tool's text; a server that cannot be reached is Unavailable, and
	// Sent tells whether the call may have had an effect.
	Call(ctx context.Context, method string, args json.RawMessage, o *CallOptions) (agent.ToolResult, error)
	Status() agent.ToolStatus
	Close() error
}

// Offer is a tool as its source describes it.
type Offer struct {
	agent.Tool
	Hints    *Hints       // what the source says of its effect; nil when it says nothing
	Declared agent.Effect // that a manifest declares, or Skep itself; else Unclassified
	Own      bool         // it is Skep's own: Declared is believed of any server, and it is not pinned
}

// Hints are the annotations of MCP. A nil field is one that the server did not give, read from its own JSON.
type Hints struct{ ReadOnly, Destructive, Idempotent, OpenWorld *bool }

// CallOptions is what a call brings with it. A nil field is not there.
type CallOptions struct {
	For      agent.ToolCall                                                            // whose call it is
	Elicit   func(context.Context, agent.Question) (agent.ApprovalAnswer, error)       // asks a person; nil refuses
	Progress func(Progress)                                                            // is told how far it has come
	Call     func(ctx context.Context, name string, in []byte) (out []byte, err error) // the door of the cell that calls, for built-in tools: package abi's calls
	Depth    int                                                                       // how many agents wait for the caller, which ends cycles
	Key      string                                                                    // the same when the same call is made again, for servers that know such keys
}

// Progress is how far a call has come. Total is 0 when nobody knows.
type Progress struct {
	Done, Total float64
	Message     string
}

// Opener opens the source of a record. changed is to be called when its list of tools has changed, or its state.
type Opener func(ctx context.Context, s agent.ToolServer, changed func()) (Source, error)

// Openers by kind; cmd wires them.
type Openers map[agent.ServerKind]Opener
