package skep

import (
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/abi"
)

// Shared is the state of the instance that its clients see: one JSON value, of which each connected client is told each change once
// it is durable. The zero value is ready: var board skep.Shared[Board].
type Shared[T any] struct{}

// Get returns the state and its version. Version 0 means that it was never set; the state is then the zero value.
func (Shared[T]) Get() (state T, version int64, err error) {
	var got abi.Shared
	if err := ask(abi.CallSharedGet, nil, &got); err != nil || got.State == nil {
		return state, got.Version, err
	}
	if err := json.Unmarshal(got.State, &state); err != nil {
		return state, got.Version, fmt.Errorf("shared state: %w", err)
	}
	return state, got.Version, nil
}

// Set sets the state and returns its new version.
func (Shared[T]) Set(state T) (version int64, err error) { return setShared(state, nil) }

// SetIf sets the state if it has that version, and returns its new one. Else it fails with a CallError of kind "conflict".
func (Shared[T]) SetIf(version int64, state T) (now int64, err error) {
	return setShared(state, &version)
}

func setShared(state any, version *int64) (int64, error) {
	raw, err := json.Marshal(state)
	if err != nil {
		return 0, fmt.Errorf("shared state: %w", err)
	}
	var out abi.Shared
	err = ask(abi.CallSharedSet, abi.SharedSet{State: raw, If: version}, &out)
	return out.Version, err
}
