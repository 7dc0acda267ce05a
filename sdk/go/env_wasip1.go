package skep

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// The functions below are the Extism ABI. A block is memory owned by the host; 0 is no block.

type block uint64

//go:wasmimport extism:host/env alloc
func extismAlloc(length uint64) block

//go:wasmimport extism:host/env length
func extismLength(block) uint64

//go:wasmimport extism:host/env load_u8
func extismLoadU8(block) uint32

//go:wasmimport extism:host/env load_u64
func extismLoadU64(block) uint64

//go:wasmimport extism:host/env store_u8
func extismStoreU8(block, uint32)

//go:wasmimport extism:host/env store_u64
func extismStoreU64(block, uint64)

//go:wasmimport extism:host/env input_length
func extismInputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func extismInputLoadU8(offset uint64) uint32

//go:wasmimport extism:host/env input_load_u64
func extismInputLoadU64(offset uint64) uint64

//go:wasmimport extism:host/env output_set
func extismOutputSet(block, uint64)

//go:wasmimport extism:host/env error_set
func extismErrorSet(block)

//go:wasmimport extism:host/env config_get
func extismConfigGet(key block) block

//go:wasmimport extism:host/env log_debug
func extismLogDebug(block)

//go:wasmimport extism:host/env log_info
func extismLogInfo(block)

//go:wasmimport extism:host/env log_warn
func extismLogWarn(block)

//go:wasmimport extism:host/env log_error
func extismLogError(block)

//go:wasmimport extism:host/user skep_call
func skepCall(name, input block) block

//go:wasmimport extism:host/user skep_batch
func skepBatch(calls block) block

// Input returns the bytes that the call was given.
func Input() []byte {
	b := make([]byte, extismInputLength())
	words := len(b) &^ 7
	for i := 0; i < words; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], extismInputLoadU64(uint64(i)))
	}
	for i := words; i < len(b); i++ {
		b[i] = byte(extismInputLoadU8(uint64(i)))
	}
	return b
}

// Output sets the call's output, in place of any set before.
func Output(b []byte) { extismOutputSet(store(b), uint64(len(b))) }

func setError(b []byte) { extismErrorSet(store(b)) }

// Config returns a plain setting of the agent, and whether it is set.
func Config(key string) (value string, ok bool) {
	at := extismConfigGet(store([]byte(key)))
	if at == 0 {
		return "", false
	}
	return string(load(at)), true
}

// Now is the time as the call's host gives it, which is what time.Now says as well. In a test it is the time of the Fake.
func Now() time.Time { return time.Now() }

func seed() (s [32]byte) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

func logLine(l level, message string) {
	at := store([]byte(message))
	switch l {
	case levelDebug:
		extismLogDebug(at)
	case levelInfo:
		extismLogInfo(at)
	case levelWarn:
		extismLogWarn(at)
	default:
		extismLogError(at)
	}
}

func hostCall(name string, in []byte) []byte {
	return load(skepCall(store([]byte(name)), store(in)))
}

func store(b []byte) block {
	at := extismAlloc(uint64(len(b)))
	words := len(b) &^ 7
	for i := 0; i < words; i += 8 {
		extismStoreU64(at+block(i), binary.LittleEndian.Uint64(b[i:]))
	}
	for i := words; i < len(b); i++ {
		extismStoreU8(at+block(i), uint32(b[i]))
	}
	return at
}

func load(at block) []byte {
	if at == 0 {
		return nil
	}
	b := make([]byte, extismLength(at))
	words := len(b) &^ 7
	for i := 0; i < words; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], extismLoadU64(at+block(i)))
	}
	for i := words; i < len(b); i++ {
		b[i] = byte(extismLoadU8(at + block(i)))
	}
	return b
}

func hostBatch(calls []byte) []byte { return load(skepBatch(store(calls))) }
