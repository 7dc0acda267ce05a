package runtime

import "context"

// database is the SQL of one instance, as it is kept open between its turns.
type database struct{}

func (d *database) close() error { return nil }

// endTurn rolls back what a turn has left open.
func (d *database) endTurn(context.Context) error { return nil }
