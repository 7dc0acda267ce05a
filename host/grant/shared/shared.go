// Package shared grants an instance the state that its clients see.
package shared

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// MaxState is the most bytes of a state, as JSON without spaces.
const MaxState = 1 << 20

// State is the shared state of one instance, as a turn has it.
type State interface {
	Get(ctx context.Context) (abi.Shared, error)
	// Set returns the version that the state has now.
	Set(ctx context.Context, in abi.SharedSet) (version int64, err error)
}

// Add puts the handlers of package abi's calls of the shared state into a door's.
func Add(handlers map[string]grant.Handler, s State) {
	handlers[abi.CallSharedGet] = func(ctx context.Context, in []byte) ([]byte, error) {
		if len(in) > 0 {
			if err := grant.Decode(in, &struct{}{}); err != nil {
				return nil, err
			}
		}
		out, err := s.Get(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
	handlers[abi.CallSharedSet] = grant.JSON(func(ctx context.Context, in abi.SharedSet) (abi.Shared, error) {
		var err error
		if in.State, err = Compact(in.State); err != nil {
			return abi.Shared{}, err
		}
		version, err := s.Set(ctx, in)
		return abi.Shared{Version: version}, err
	})
}

// Compact returns a state without spaces, or refuses what cannot be one.
func Compact(state abi.Raw) (abi.Raw, error) {
	var b bytes.Buffer
	if len(state) == 0 || json.Compact(&b, state) != nil {
		return nil, agent.Errorf(agent.Invalid, "the state is not a JSON value")
	}
	if b.Len() > MaxState {
		err := agent.AsError(agent.Exceeded(agent.LimitState, "the shared state has %d bytes, more than %d", b.Len(), MaxState))
		err.Hint = "keep in it what clients show, and the rest in storage"
		return nil, err
	}
	return b.Bytes(), nil
}
