package ledger

import "context"

// Expire is what Run does once a minute.
func (l *Ledger) Expire(ctx context.Context) error { return l.expire(ctx) }
