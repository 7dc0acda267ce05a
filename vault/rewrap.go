package vault

import (
	"context"
	"errors"
	"fmt"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/vault/kek"
)

// Rewrapped tells what a re-wrap has done.
type Rewrapped struct {
	Key      string `json:"key" doc:"fingerprint of the key that every secret is under now"`
	Source   string `json:"source" doc:"where it is; what --vault-key must say at the next start"`
	Secrets  int    `json:"secrets" doc:"secrets that were under another key"`
	Versions int    `json:"versions" doc:"their versions"`
}

// Rewrap puts every secret under the key that source names, and new values with them; a key of a file or of an age identity is
// made where there is none. Values stay encrypted on the way. Secrets can be used and changed meanwhile. A Rewrap that was cut
// off is ended by another with the same source, or by the next Open.
func (v *Vault) Rewrap(ctx context.Context, by By, source string) (Rewrapped, error) {
	if !v.rewrapping.TryLock() {
		return Rewrapped{}, &agent.Error{Kind: agent.Conflict, Msg: "a re-wrap is under way", Hint: "wait for it to end"}
	}
	defer v.rewrapping.Unlock()
	if err := v.moveTo(ctx, by, source); err != nil {
		return Rewrapped{}, err
	}
	return v.finish(ctx)
}

// moveTo makes the key that source names the current one, beside those that secrets are under.
func (v *Vault) moveTo(ctx context.Context, by By, source string) error {
	v.write.Lock()
	defer v.write.Unlock()
	if _, err := v.usable(); err != nil {
		return err
	}
	if source == "memory" {
		return agent.Errorf(agent.Invalid, "vault key: secrets that are kept cannot be under a key that is not")
	}
	key, err := v.open(ctx, source, kek.Make)
	if err != nil {
		return err
	}
	next := store.VaultKeys{Current: key.ID}
	for _, k := range v.known.Keys {
		if k.ID != key.ID {
			next.Keys = append(next.Keys, k)
		}
	}
	k, err := v.describe(ctx, key)
	if err != nil {
		return err
	}
	next.Keys = append(next.Keys, k)
	if err := v.audit(ctx, by, agent.DefaultApp, "secret.rewrap", "", fmt.Sprintf("to key %s, %s", key.ID, source)); err != nil {
		return err
	}
	if err := v.putKeys(ctx, next); err != nil {
		return err
	}
	v.mu.Lock()
	v.current = key.ID
	v.mu.Unlock()
	return nil
}

// finish puts every secret under the current key, one commit each, and then forgets the keys that none is under. A secret that
// cannot be opened holds up only itself. The caller holds v.rewrapping.
func (v *Vault) finish(ctx context.Context) (Rewrapped, error) {
	key, err := v.usable()
	if err != nil {
		return Rewrapped{}, err
	}
	done := Rewrapped{Key: key.ID, Source: key.Source}
	all, err := v.st.AllSecrets(ctx)
	if err != nil {
		return done, err
	}
	var failed []error
	for _, s := range all {
		n, err := v.rewrapOne(ctx, key, s.App, s.Name)
		if e := agent.AsError(err); e != nil {
			if ctx.Err() != nil || e.Kind == agent.Unavailable {
				return done, err
			}
			failed = append(failed, fmt.Errorf("%s in app %s: %w", s.Name, s.App, err))
			continue
		}
		if n > 0 {
			done.Secrets++
			done.Versions += n
		}
	}
	if len(failed) > 0 {
		return done, &agent.Error{
			Kind: agent.Conflict, Msg: fmt.Sprintf("%d secrets could not be put under the new key; the old one is still needed", len(failed)),
			Err: errors.Join(failed...), Hint: "the server's log names them; delete them and set them again, then do this once more",
		}
	}
	return done, v.forget(ctx, key)
}

// rewrapOne puts what is not under key of one secret under it, and returns how many versions that were.
func (v *Vault) rewrapOne(ctx context.Context, key *kek.Key, app agent.App, name string) (n int, err error) {
	v.write.Lock()
	defer v.write.Unlock()
	s, err := v.st.Secret(ctx, app, name)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		return 0, nil // deleted meanwhile
	}
	if err != nil {
		return 0, err
	}
	var move []int
	for _, ver := range s.Versions {
		if ver.Key != key.ID {
			move = append(move, ver.Version)
		}
	}
	if len(move) == 0 && s.Seal.Key == key.ID {
		return 0, nil
	}
	if err := v.checkSeal(ctx, s); err != nil {
		return 0, err
	}
	values := map[int][]byte{}
	if len(move) > 0 {
		if s, values, err = v.st.SealedSecret(ctx, app, name, move...); err != nil {
			return 0, err
		}
	}
	for i, ver := range s.Versions {
		b, ok := values[ver.Version]
		if !ok {
			continue
		}
		from := v.key(ver.Key)
		if from == nil {
			return 0, errGone
		}
		if values[ver.Version], err = rewrapValue(ctx, from, key, b); err != nil {
			return 0, refusal(name, err)
		}
		s.Versions[i].Key = key.ID
	}
	if s, err = sealed(ctx, key, s); err != nil {
		return 0, err
	}
	_, err = v.st.SaveSecret(ctx, s, values)
	return max(len(move), 1), err
}

// forget drops every key but the current one, when no secret is under another.
func (v *Vault) forget(ctx context.Context, key *kek.Key) error {
	v.write.Lock()
	defer v.write.Unlock()
	all, err := v.st.AllSecrets(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, id := range s.KeysUsed() {
			if id != key.ID {
				return agent.Errorf(agent.Conflict, "secret %q is still under key %s", s.Name, id)
			}
		}
	}
	next := store.VaultKeys{Current: key.ID}
	for _, k := range v.known.Keys {
		if k.ID == key.ID {
			next.Keys = append(next.Keys, k)
		}
	}
	if err := v.putKeys(ctx, next); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.keys {
		if id != key.ID {
			delete(v.keys, id)
		}
	}
	return nil
}
