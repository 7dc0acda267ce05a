package client

import (
	"context"
	"io"

	"github.com/skep-dev/skep/agent"
)

// Backup writes a backup of the server's whole store to w. What came when it returns an error is no backup.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	res, err := c.send(ctx, "GET", path("backup"), nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		if ctx.Err() != nil {
			return c.unreachable(ctx, err)
		}
		return &agent.Error{Kind: agent.Internal, Msg: "the backup broke off", Err: err, Hint: "the server's log says why"}
	}
	return nil
}
