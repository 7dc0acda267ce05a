package skep

import "math/rand/v2"

// Rand returns a source of pseudo-random numbers of this call alone. Every call of an agent begins as a copy of one
// initialised program, and with it as a copy of the state of math/rand/v2's top-level functions: those give each call the
// same numbers. Package crypto/rand asks the host and is fresh in each call. In a run both are the same again when it is replayed.
func Rand() *rand.Rand { return rand.New(rand.NewChaCha8(seed())) }
