// Package sim simulates instances: Keepers over the memory store, which die, are taken over, meet a store that fails, and see a clock
// that jumps. Clients make turns of all kinds; what they were told is held against what is there in the end. All of it follows
// from a seed, time is not real, and a seed takes a few milliseconds. It is all in the tests; docs/design/proofs.md tells more.
package sim
