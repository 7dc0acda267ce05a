// Package sql answers SQL over an instance's own database. As all storage of its own, an instance needs no grant for it.
package sql

import (
	"context"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/host/grant"
)

// DB is the database of one instance, within a turn.
type DB interface {
	Query(ctx context.Context, q abi.SQL) (abi.SQLRows, error)
}

// Add puts the handler of abi.CallStorageSQL into a door's.
func Add(handlers map[string]grant.Handler, db DB) {
	handlers[abi.CallStorageSQL] = grant.JSON(func(ctx context.Context, q abi.SQL) (abi.SQLRows, error) {
		rows, err := db.Query(ctx, q)
		if err != nil {
			return abi.SQLRows{}, err
		}
		// Lists are lists on the wire, also those without an entry.
		if rows.Columns == nil {
			rows.Columns = []string{}
		}
		if rows.Rows == nil {
			rows.Rows = [][]abi.SQLValue{}
		}
		return rows, nil
	})
}
