package quota

import (
	"context"
	"time"

	"github.com/skep-dev/skep/store/ledger"
)

// Load returns a keeper that goes on from what the ledger knows of today, and writes uses of grants into it.
func Load(ctx context.Context, l *ledger.Ledger) (*Keeper, error) {
	start := Start{Day: time.Now()}
	rows, uses, err := l.Day(ctx, start.Day)
	if err != nil {
		return nil, err
	}
	start.Rows = rows
	for _, u := range uses {
		start.Uses = append(start.Uses, Use{u.App, u.Agent, u.Grant, u.Uses})
	}
	return New(start, &Options{Note: l.Append}), nil
}
