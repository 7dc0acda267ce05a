package main

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newSessions(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "sessions",
		Aliases: []string{"session"},
		Short:   "Open, list and show sessions, and send messages to them",
		Long:    "A session is a conversation with an agent: an ordered log of messages, runs and events.",
		Example: "  skep sessions create hello --title 'small talk'\n  skep sessions send 01JQ8... 'How are you?'",
	})
	cmd.AddCommand(newSessionCreate(c), newSessionList(c), newSessionShow(c), newSessionSend(c))
	return cmd
}

func newSessionCreate(c *cli) *cobra.Command {
	var s client.NewSession
	cmd := &cobra.Command{
		Use:   "create AGENT",
		Short: "Open a session and print its id",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			s.Agent = args[0]
			made, err := cl.CreateSession(cmd.Context(), s)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(made)
			}
			c.printf("%s\n", made.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&s.Key, "key", "", "instance of the agent; \"default\" unless given")
	cmd.Flags().StringVar(&s.Title, "title", "", "what the session is about")
	return cmd
}

func newSessionList(c *cli) *cobra.Command {
	var name string
	list := func(cl *client.Client, ctx context.Context, page agent.Page) (client.List[agent.Session], error) {
		return cl.Sessions(ctx, name, page)
	}
	cmd := listVerb(c, "List sessions, newest first", list, table[agent.Session]{
		what: "sessions", hint: "skep sessions create AGENT opens one", header: []string{"ID", "AGENT", "KEY", "EVENTS", "CREATED", "TITLE"},
		row: func(s agent.Session) []string {
			return []string{string(s.ID), s.Agent, s.Key, strconv.FormatInt(s.LastSeq, 10), when(s.Created), s.Title}
		},
	})
	cmd.Flags().StringVar(&name, "agent", "", "only sessions with this agent")
	return cmd
}

func newSessionShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show SESSION",
		Short: "Show a session; skep logs SESSION shows its events",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			s, err := cl.Session(cmd.Context(), agent.SessionID(args[0]))
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(s)
			}
			c.printFields("id", string(s.ID), "agent", s.Agent, "key", s.Key, "title", s.Title, "created", when(s.Created), "events", strconv.FormatInt(s.LastSeq, 10))
			return nil
		},
	}
}

func newSessionSend(c *cli) *cobra.Command {
	var detach, quiet bool
	var role string
	cmd := &cobra.Command{
		Use:   "send SESSION MESSAGE",
		Short: "Send a message, follow the run it starts and print the answer",
		Long:  "Send a message to a session. It starts a run of the agent's onMessage, which is followed as skep run does.\n\n" + inputHelp,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := c.jsonInput(args[1:])
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			r, err := cl.Send(cmd.Context(), agent.SessionID(args[0]), agent.Message{Role: role, Content: json.RawMessage(content)})
			if err != nil {
				return err
			}
			if detach {
				if c.json {
					return c.printJSON(r)
				}
				c.printf("%s\n", r.ID)
				return nil
			}
			return c.attach(cmd.Context(), cl, r, quiet, true)
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "print the run's id and leave it running")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the answer only")
	cmd.Flags().StringVar(&role, "role", "user", "who says it")
	return cmd
}
