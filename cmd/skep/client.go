package main

import (
	"os"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// client returns a client of the server that target finds.
func (c *cli) client() (*client.Client, error) {
	t, err := c.target()
	if err != nil {
		return nil, err
	}
	return client.New(t.url, t.token, &client.Options{App: agent.App(or(c.app, os.Getenv("SKEP_APP")))}), nil
}
