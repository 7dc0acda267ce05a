package quota

import (
	"context"
	"time"

	"github.com/skep-dev/skep/store/ledger"
)

// Load returns a keeper that goes on from what the ledger knows of today, and writes uses of grants into it.
func Load(ctx context.Context, l *ledger.Ledger) (*Keeper, error) {
	now := time.Now()
	rows, uses, err := l.Day(ctx, now)
	if err != nil {
		return nil, err
	}
	return New(Start{Day: now, Rows: rows, Uses: uses}, &Options{Note: l.Append}), nil
}
