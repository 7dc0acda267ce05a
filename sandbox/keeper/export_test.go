package keeper

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

// Admit returns nil when a sandbox of env could be made now. The error is the one that Open would have.
func (k *Keeper) Admit(ctx context.Context, env *agent.Environment, keep agent.SandboxKeep) error {
	_, err := k.admit(ctx, env, keep, env.Provider)
	return err
}
