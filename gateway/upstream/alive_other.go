//go:build !unix

package upstream

// alive reports whether an idle connection can be used, as far as is known.
func (c *conn) alive() bool { return true }
