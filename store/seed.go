package store

import (
	"context"
	"crypto/rand"

	"github.com/skep-dev/skep/agent"
)

// SeedSize is the length of an image seed in bytes.
const SeedSize = 32

// ImageSeed returns the secret bytes from which modules draw while they are initialised, so that the same module is laid out alike in each process and after
// skep restore. Where none are kept yet, it keeps old, or random ones when old is empty; an old of another length than SeedSize is Invalid.
func (s *Store) ImageSeed(ctx context.Context, old []byte) ([]byte, error) {
	var kept struct {
		Seed []byte `json:"seed"`
	}
	err := s.update(ctx, func(t *tx) error {
		if _, found, err := lookup(t, keySeed, &kept); err != nil || found {
			return err
		}
		kept.Seed = old
		if len(old) == 0 {
			kept.Seed = make([]byte, SeedSize)
			rand.Read(kept.Seed)
		}
		if len(kept.Seed) != SeedSize {
			return agent.Errorf(agent.Invalid, "an image seed has %d bytes, not %d", SeedSize, len(kept.Seed))
		}
		return t.save(keySeed, 0, kept)
	})
	return kept.Seed, err
}
