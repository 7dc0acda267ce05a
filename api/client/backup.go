package client

import (
	"context"
	"io"
)

// Backup writes a backup of the server's whole store to w. What came when it returns an error is no backup.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	return c.copy(ctx, path("backup"), "backup", w)
}
