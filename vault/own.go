package vault

import (
	"context"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// ownPrefix begins the names of values that Skep keeps for itself, such as tokens that servers of tools have given it. No secret of a person can be
// called so (agent.CheckName), and so no grant, record or placeholder can name one; lists leave them out.
const ownPrefix = store.OwnSecret

func own(name string) bool { return strings.HasPrefix(name, ownPrefix) }

// SetOwn keeps a value of Skep's own, in place of the one before. It overwrites value. Names are any text without NUL.
func (v *Vault) SetOwn(ctx context.Context, app agent.App, name string, value []byte) error {
	_, err := v.set(ctx, By{}, app, ownPrefix+name, Put{Value: value, Kind: agent.SecretValue}, 1)
	return err
}

// Own returns a value of Skep's own, or a NotFound error.
func (v *Vault) Own(ctx context.Context, app agent.App, name string) ([]byte, error) {
	m, err := v.material(ctx, app, ownPrefix+name)
	return m.Value, err
}

// DeleteOwn deletes a value of Skep's own, or is a NotFound error.
func (v *Vault) DeleteOwn(ctx context.Context, app agent.App, name string) error {
	v.write.Lock()
	defer v.write.Unlock()
	return v.delete(ctx, By{}, app, ownPrefix+name)
}

// DeleteAllOwn deletes the values of Skep's own whose names begin so, and returns how many there were.
func (v *Vault) DeleteAllOwn(ctx context.Context, app agent.App, prefix string) (int, error) {
	v.write.Lock()
	defer v.write.Unlock()
	n := 0
	page := agent.Page{Limit: agent.MaxPage}
	for {
		all, next, err := v.st.Secrets(ctx, app, page)
		if err != nil {
			return n, err
		}
		for _, s := range all {
			if !strings.HasPrefix(s.Name, ownPrefix+prefix) {
				continue
			}
			if err := v.delete(ctx, By{}, app, s.Name); err != nil {
				return n, err
			}
			n++
		}
		if page.After = next; next == "" {
			return n, nil
		}
	}
}

// unknown is the error of a name that no secret of a person can have, or nil.
func unknown(name string) error {
	if own(name) {
		return agent.Errorf(agent.NotFound, "there is no secret %q", name)
	}
	return nil
}
