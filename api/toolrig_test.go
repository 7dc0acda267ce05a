package api

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// lookSource is a server of tools with one that only looks.
type lookSource struct{}

func openLook(context.Context, agent.ToolServer, func()) (tools.Source, error) {
	return lookSource{}, nil
}

func (lookSource) Tools(context.Context) ([]tools.Offer, error) {
	return []tools.Offer{{Tool: agent.Tool{Method: "look", Description: "Looks.", Input: json.RawMessage(`{"type":"object"}`), Digest: agent.DigestOf([]byte("look"))}}}, nil
}

func (lookSource) Call(context.Context, string, json.RawMessage, *tools.CallOptions) (agent.ToolResult, error) {
	return agent.ToolResult{Value: json.RawMessage(`"seen"`)}, nil
}

func (lookSource) Status() agent.ToolStatus { return agent.ToolStatus{State: agent.ServerReady} }
func (lookSource) Close() error             { return nil }
