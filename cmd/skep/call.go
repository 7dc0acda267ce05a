package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
)

// callResult is what skep call --json prints.
type callResult struct {
	Output agent.Payload `json:"output"`
	Usage  agent.Usage   `json:"usage"`
}

func newCall(c *cli) *cobra.Command {
	var mediaType string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "call AGENT FUNCTION [INPUT]",
		Short: "Call a function of an agent and print what it returns",
		Long:  "Call a function of an agent, in a fresh cell, and print what it returns.\n\n" + inputHelp,
		Example: `  skep call hello greet '{"name":"Ada"}'
  skep call text-tool stats @letter.txt
  curl -s https://example.com | skep call text-tool extract -`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := c.input(args[2:], mediaType)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			c.rememberCall(args[0], pastCall{args[1], input})
			output, usage, err := cl.Call(cmd.Context(), args[0], args[1], input, timeout)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(callResult{output, usage})
			}
			return c.printBytes(output)
		},
	}
	cmd.ValidArgsFunction = c.complete(agentNames, agentFunctions)
	cmd.Flags().StringVar(&mediaType, "type", "", "media type of the input")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "most time for the call, when less than the agent's limit")
	return cmd
}
