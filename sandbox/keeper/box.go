package keeper

import (
	"context"
	"errors"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver/link"
)

// Box is a sandbox that was ready when it was returned. It stays with the generation that it was of.
type Box struct {
	k  *Keeper
	lv *live
}

// Record returns the sandbox as it was stored last.
func (b *Box) Record() agent.Sandbox { return b.lv.rec.Load().Sandbox }

// Do has the driver carry out a command, one of driver.Do*, with the body in, and reads the body of the reply into out; both may be nil. It waits over
// connections that are lost and come back. An error is the driver's; or wraps ErrLost when the box has gone, or goes meanwhile; or says that ctx has ended,
// when the command may be under way.
func (b *Box) Do(ctx context.Context, name string, in, out any) error {
	b.lv.busy.Add(1)
	defer b.lv.busy.Add(-1)
	defer b.lv.touch()
	return b.lost(ctx, b.lv.link.Do(ctx, name, in, out))
}

// Stream returns a stream of bytes for a command: Args goes into it, and Conn returns the connection. It has to be closed.
func (b *Box) Stream() (*link.Stream, error) {
	st, err := b.lv.link.Stream()
	b.lv.touch()
	return st, b.lost(context.Background(), err)
}

// lost stores that a box has gone when its driver has, and returns why.
func (b *Box) lost(ctx context.Context, err error) error {
	if !errors.Is(err, link.ErrLost) {
		return err
	}
	return b.k.lose(ctx, b.lv.rec.Load(), err.Error())
}
