package durable

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/store/instance"
)

func isGone(err error) bool { return errors.Is(err, instance.ErrGone) }

// Stats counts what a Keeper did since it was made, and says what it holds.
type Stats struct {
	Owned    int // instances that are known at this moment
	Waiting  int // turns that wait in lines
	Turns    int64
	TurnTime time.Duration // of all turns together
	Refused  int64         // turns for which the line was too long
	Acquired int64
	Commits  int64
	Parts    int64 // of all commits together
	Bytes    int64
	Syncing  time.Duration // that commits took together
	Alarms   int64         // dealt with
	Messages int64         // delivered
}

type counters struct {
	turns, turnTime, refused, acquired, commits, parts, bytes, syncing, alarms, messages atomic.Int64
}

func (c *counters) turn(d time.Duration) {
	c.turns.Add(1)
	c.turnTime.Add(int64(d))
}

func (c *counters) committed(b *instance.Batch, d time.Duration) {
	c.commits.Add(1)
	c.parts.Add(int64(b.Ops()))
	c.bytes.Add(int64(b.Size()))
	c.syncing.Add(int64(d))
}

// Stats returns the figures.
func (k *Keeper) Stats() Stats {
	c := &k.stats
	s := Stats{
		Turns: c.turns.Load(), TurnTime: time.Duration(c.turnTime.Load()), Refused: c.refused.Load(), Acquired: c.acquired.Load(),
		Commits: c.commits.Load(), Parts: c.parts.Load(), Bytes: c.bytes.Load(), Syncing: time.Duration(c.syncing.Load()),
		Alarms: c.alarms.Load(), Messages: c.messages.Load(),
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s.Owned = len(k.owned)
	for _, o := range k.owned {
		s.Waiting += len(o.line)
	}
	return s
}

// Waiting returns how many turns wait for an instance.
func (k *Keeper) Waiting(id instance.ID) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.owned[id]; o != nil {
		return len(o.line)
	}
	return 0
}
