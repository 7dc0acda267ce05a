package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// authEvery is how often it is looked whether a person has authorized Skep.
const authEvery = time.Second

func newToolsAuthorize(c *cli) *cobra.Command {
	var o agent.ToolOAuth
	var mine, forget, wait bool
	cmd := &cobra.Command{
		Use:   "authorize SERVER",
		Short: "Authorize Skep with a server of tools that wants a person's consent (OAuth)",
		Long: `Authorize Skep with a server of tools that wants a person's consent (OAuth 2.1, as MCP has it): print the URL of its page, and wait until
somebody has agreed there. What Skep is given is kept in the vault, where no agent can name it, and refreshed as long as the server lets it be.

It is for all of the app, which an owner's token may do, or with --mine for the runs that are started with your token. Skep makes itself
known to the server by itself, where that is possible; else register it there, with the redirect URL that the error names, and say its
client with --client-id and --client-secret.`,
		Example: `  skep tools authorize linear
  skep tools authorize linear --mine
  skep tools authorize drive --client-id 1234.apps.example.com --client-secret drive-client --scope files.read
  skep tools authorize linear --forget`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.complete(toolServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if forget {
				if err := cl.ForgetToolAuthorization(cmd.Context(), args[0], mine); err != nil {
					return err
				}
				if c.json {
					return c.printJSON(map[string]string{"forgotten": args[0]})
				}
				c.printf("forgot the authorization with server %s\n", args[0])
				return nil
			}
			if err := withOAuth(cmd.Context(), cl, args[0], o); err != nil {
				return err
			}
			return c.authorize(cmd.Context(), cl, args[0], mine, wait)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&mine, "mine", false, "for runs that are started with your token, instead of for all of the app")
	flags.BoolVar(&forget, "forget", false, "delete what Skep was given")
	flags.BoolVar(&wait, "wait", true, "wait until it is done")
	flags.StringVar(&o.ClientID, "client-id", "", "`ID` of a client that was registered with the authorization server before")
	flags.StringVar(&o.ClientSecret, "client-secret", "", "`SECRET` of the vault that holds that client's secret")
	flags.StringVar(&o.Metadata, "metadata", "", "`URL` of a client id metadata document that makes Skep known")
	flags.StringSliceVar(&o.Scopes, "scope", nil, "`SCOPE` to ask for; what the server says unless given; may be given more than once")
	return cmd
}

// withOAuth sees to it that the record of a server says how Skep authorizes itself.
func withOAuth(ctx context.Context, cl *client.Client, name string, o agent.ToolOAuth) error {
	s, err := cl.ToolServer(ctx, name)
	if err != nil {
		return err
	}
	given := o.ClientID != "" || o.ClientSecret != "" || o.Metadata != "" || len(o.Scopes) > 0
	if s.OAuth != nil && !given {
		return nil
	}
	if s.OAuth != nil {
		o.ClientID, o.ClientSecret, o.Metadata = or(o.ClientID, s.OAuth.ClientID), or(o.ClientSecret, s.OAuth.ClientSecret), or(o.Metadata, s.OAuth.Metadata)
		if o.Scopes == nil {
			o.Scopes = s.OAuth.Scopes
		}
	}
	_, err = cl.UpdateToolServer(ctx, name, client.ToolServerPatch{OAuth: &o})
	return err
}

func (c *cli) authorize(ctx context.Context, cl *client.Client, server string, mine, wait bool) error {
	a, err := cl.AuthorizeTools(ctx, server, mine)
	if err != nil {
		return err
	}
	if !wait {
		if c.json {
			return c.printJSON(a)
		}
		c.printf("%s\n", plain(a.URL))
		return nil
	}
	if c.json {
		c.notef("%s\n", plain(a.URL))
	} else {
		c.printf("open this page, and agree there:\n\n  %s\n\n", plain(a.URL))
	}
	tick := time.NewTicker(authEvery)
	defer tick.Stop()
	for before := a.At; ; {
		now, err := cl.ToolAuthorization(ctx, server, mine)
		if err != nil {
			return err
		}
		switch {
		case now.Authorized && !now.At.Equal(before):
			if c.json {
				return c.printJSON(now)
			}
			words := ""
			if len(now.Scopes) > 0 {
				words = " for " + plain(strings.Join(slices.Sorted(slices.Values(now.Scopes)), ", "))
			}
			c.printf("Skep is authorized with server %s%s\n", server, words)
			return nil
		case time.Now().After(a.Expires):
			return &agent.Error{Kind: agent.Unavailable, Msg: "nobody has agreed in time", Hint: "begin again: skep tools authorize " + server}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
