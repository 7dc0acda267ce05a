package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type demoArgs struct {
	Text string `json:"text"`
}

type demoResult struct {
	Text string `json:"text"`
}

// mcpDemo is a server of tools for the scripts, as a program of its own: mcpdemo [FILE]. What its tool note says of itself is in the file.
func mcpDemo() {
	s := mcp.NewServer(&mcp.Implementation{Name: "filesystem", Version: "1.0"}, nil)
	about := "Keep a note."
	if len(os.Args) > 1 {
		b, err := os.ReadFile(os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "mcpdemo:", err)
			os.Exit(1)
		}
		about = strings.TrimSpace(string(b))
	}
	no := false
	mcp.AddTool(s, &mcp.Tool{Name: "read_file", Description: "Echo a text.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, demo("read: "))
	mcp.AddTool(s, &mcp.Tool{Name: "note", Description: about, Annotations: &mcp.ToolAnnotations{DestructiveHint: &no}}, demo("noted: "))
	mcp.AddTool(s, &mcp.Tool{Name: "run-it", Description: "Run a text."}, demo("ran: "))
	if len(os.Args) > 2 { // a library as well
		s.AddPrompt(&mcp.Prompt{Name: "review", Description: "Ask for a review.", Arguments: []*mcp.PromptArgument{{Name: "file", Required: true}}},
			func(_ context.Context, q *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
				return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "Review " + q.Params.Arguments["file"]}}}}, nil
			})
		read := func(_ context.Context, q *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: q.Params.URI, Text: "the text of " + q.Params.URI}}}, nil
		}
		s.AddResource(&mcp.Resource{URI: "demo://guide", Name: "guide", MIMEType: "text/plain"}, read)
		s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "demo://notes/{id}", Name: "note"}, read)
	}
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

func demo(what string) mcp.ToolHandlerFor[demoArgs, demoResult] {
	return func(_ context.Context, _ *mcp.CallToolRequest, a demoArgs) (*mcp.CallToolResult, demoResult, error) {
		return nil, demoResult{what + a.Text}, nil
	}
}
