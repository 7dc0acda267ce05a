// Package store holds Skep's durable data and every rule about it: plugins, agents, sessions, runs, event logs, tokens,
// state, instances, idempotency keys and blobs. Below it is a kv.DB, which is only an ordered map.
//
// What a method has answered is on disk: it survives kill -9 and a power cut. Transactions of many callers share one
// durable batch. Every record carries a checksum, every log and collection is numbered without gaps, and what one record
// names must be there: a loss or a flipped bit is an error that wraps *CorruptError, never a wrong value and never
// silence. docs/design/store.md tells how.
//
// Errors are agent.Errors, or ctx's own. A method that changes something returns Unavailable when it is not known whether the change
// happened; the caller tries again with the same Once.
package store
