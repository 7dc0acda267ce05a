package cell

import "context"

type numberKey struct{}

// WithNumber returns a context for a request of a guest that counts what it asks of its host, from 1.
func WithNumber(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, numberKey{}, n)
}

// Number returns the number of the request that ctx belongs to, or 0 when the guest does not count.
func Number(ctx context.Context) uint64 {
	n, _ := ctx.Value(numberKey{}).(uint64)
	return n
}
