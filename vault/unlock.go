package vault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/vault/kek"
)

const checkText = "skep vault check 1\x00"

// unlock opens the keys that secrets are under and the one for new values, and remembers them in the store.
func (v *Vault) unlock(ctx context.Context) error {
	all, err := v.st.AllSecrets(ctx)
	if err != nil {
		return err
	}
	if v.known, err = v.st.VaultKeys(ctx); err != nil {
		return err
	}
	used := map[string]int{} // secrets by the key that they are under
	for _, s := range all {
		for _, id := range s.KeysUsed() {
			used[id]++
		}
	}
	var tried []string
	for _, source := range v.o.OldKeys {
		k, err := v.open(ctx, source, kek.Find)
		if err != nil {
			return err
		}
		tried = append(tried, source+" (key "+k.ID+")")
	}
	needed := maps.Clone(used)
	for _, id := range v.o.LostKeys {
		delete(needed, id)
	}
	main, err := v.openMain(ctx, needed)
	if err != nil {
		return v.missing(used, tried, err)
	}
	if main == nil {
		return nil
	}
	tried = append(tried, main.Source+" (key "+main.ID+")")
	v.current = main.ID
	if v.underWay() {
		v.resume(ctx, main)
	}
	if err := v.giveUp(ctx, all, used); err != nil {
		return err
	}
	if lost := v.unopened(used); len(lost) > 0 {
		return v.missing(used, tried, nil)
	}
	return v.remember(ctx, used)
}

// giveUp deletes the secrets that are under a lost key, and takes them out of used. Their names and bindings are in the audit log.
func (v *Vault) giveUp(ctx context.Context, all []store.Secret, used map[string]int) error {
	gone := slices.DeleteFunc(v.unopened(used), func(id string) bool { return !slices.Contains(v.o.LostKeys, id) })
	for _, s := range all {
		ids := s.KeysUsed()
		i := slices.IndexFunc(ids, func(id string) bool { return slices.Contains(gone, id) })
		if i < 0 {
			continue
		}
		detail := fmt.Sprintf("its key %s is lost; it was of kind %s, %s", ids[i], s.Kind, bound(s.Bindings))
		err := v.audit(ctx, By{}, s.App, "secret.delete", s.Name, detail)
		if err == nil {
			err = v.st.DeleteSecret(ctx, s.App, s.Name)
		}
		if err != nil {
			return err
		}
		v.o.Log.Warn("vault: a secret was deleted, because its key is lost", "app", s.App, "secret", s.Name, "key", ids[i])
		for _, id := range ids {
			if used[id]--; used[id] == 0 {
				delete(used, id)
			}
		}
	}
	return nil
}

// open opens a key, and checks that it is the one of that name which the store knows.
func (v *Vault) open(ctx context.Context, source string, mode kek.Mode) (*kek.Key, error) {
	var wrapped [][]byte
	for _, k := range v.known.Keys {
		if k.Wrapped != nil {
			wrapped = append(wrapped, k.Wrapped)
		}
	}
	key, err := v.opener.Open(ctx, source, wrapped, mode)
	if err != nil {
		return nil, err
	}
	for _, k := range v.known.Keys {
		if k.ID != key.ID {
			continue
		}
		got, err := key.DecryptWithContext(ctx, k.Check, nil)
		if err == nil && !bytes.Equal(got, []byte(checkText+key.ID)) {
			err = errors.New("it decrypts to something else")
		}
		if e, ok := errors.AsType[*agent.Error](err); ok {
			return nil, e
		}
		if err != nil {
			return nil, &agent.Error{
				Kind: agent.Invalid, Msg: "vault key: " + source + " is not the key that this store's secrets are under, though it has its name", Err: err,
				Hint: "bring back the former key of that name",
			}
		}
	}
	v.mu.Lock()
	v.keys[key.ID] = key
	v.mu.Unlock()
	return key, nil
}

// openMain opens the key for new values. It is made where it is not there only when no secret can be under it. It returns nil
// when the default key cannot be had and is not needed.
func (v *Vault) openMain(ctx context.Context, used map[string]int) (*kek.Key, error) {
	mode := kek.Find
	if len(v.unopened(used)) == 0 {
		mode = kek.Make
	}
	source := v.o.Key
	var err error
	if source == "" {
		source, err = DefaultKey()
	}
	var main *kek.Key
	if err == nil {
		main, err = v.open(ctx, source, mode)
	}
	if err == nil && main.Made {
		v.made = source
	}
	if err != nil && v.o.Key == "" && len(used) == 0 {
		v.o.Log.Warn("vault: no secrets can be kept", "err", err)
		v.noKey = err
		return nil, nil
	}
	return main, err
}

// underWay reports whether a re-wrap was begun and has not ended.
func (v *Vault) underWay() bool { return len(v.known.Keys) > 1 }

// resume opens the keys of the re-wrap that is under way where they were found last, and goes on towards the one it was for,
// so that a server that is killed meanwhile starts again as it was started before.
func (v *Vault) resume(ctx context.Context, main *kek.Key) {
	ours := false
	for _, k := range v.known.Keys {
		ours = ours || k.ID == main.ID
		if v.keys[k.ID] == nil {
			if _, err := v.open(ctx, k.Source, kek.Find); err != nil {
				v.o.Log.Warn("vault: a key of the re-wrap that is under way cannot be opened", "key", k.ID, "source", k.Source, "err", err)
			}
		}
	}
	if ours && v.keys[v.known.Current] != nil {
		v.current = v.known.Current
	}
}

func (v *Vault) unopened(used map[string]int) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(used)), func(id string) bool { return v.keys[id] != nil })
}

// missing is the refusal to open a vault without a key that its secrets are under.
func (v *Vault) missing(used map[string]int, tried []string, cause error) error {
	if len(used) == 0 || agent.KindOf(cause) == agent.Unavailable {
		return cause
	}
	var want []string
	for _, id := range v.unopened(used) {
		source := "a place that is not known"
		for _, k := range v.known.Keys {
			if k.ID == id {
				source = k.Source
			}
		}
		want = append(want, fmt.Sprintf("%s, which was %s", id, source))
	}
	if len(want) == 0 {
		return cause
	}
	msg := "the secrets in this store are under vault key " + strings.Join(want, ", and ")
	if len(tried) > 0 {
		msg += "; what was given is " + strings.Join(tried, " and ")
	}
	e := &agent.Error{
		Kind: agent.Invalid, Msg: msg, Err: cause,
		Hint: "name that key with --vault-key, or with --vault-old-key beside a new one; without it the secrets cannot be read by anybody. " +
			"Where it is lost for good, --vault-lost-key with its fingerprint deletes them and starts",
	}
	if why := agent.AsError(cause); why != nil && (why.Kind == agent.Invalid || why.Kind == agent.Denied) && why.Hint != "" { // what was given cannot be used at all
		e.Hint = why.Hint
	}
	return e
}

// remember writes down the keys that are needed from now on.
func (v *Vault) remember(ctx context.Context, used map[string]int) error {
	next := store.VaultKeys{Current: v.current}
	for _, id := range slices.Sorted(maps.Keys(v.keys)) {
		if id != v.current && used[id] == 0 {
			delete(v.keys, id)
			continue
		}
		k, err := v.describe(ctx, v.keys[id])
		if err != nil {
			return err
		}
		next.Keys = append(next.Keys, k)
	}
	return v.putKeys(ctx, next)
}

// describe returns what the store remembers of a key.
func (v *Vault) describe(ctx context.Context, key *kek.Key) (store.VaultKey, error) {
	for _, k := range v.known.Keys {
		if k.ID == key.ID {
			k.Source = key.Source
			return k, nil
		}
	}
	check, err := key.EncryptWithContext(ctx, []byte(checkText+key.ID), nil)
	if err == nil {
		return store.VaultKey{ID: key.ID, Source: key.Source, Wrapped: key.Wrapped, Check: check, Created: v.now()}, nil
	}
	if _, ok := errors.AsType[*agent.Error](err); !ok {
		err = agent.Wrap(agent.Invalid, err, "vault key: "+key.Source+" encrypts nothing")
	}
	return store.VaultKey{}, err
}

func (v *Vault) putKeys(ctx context.Context, next store.VaultKeys) error {
	same := func(a, b store.VaultKey) bool { return a.ID == b.ID && a.Source == b.Source }
	if next.Current == v.known.Current && slices.EqualFunc(next.Keys, v.known.Keys, same) {
		return nil
	}
	if err := v.st.PutVaultKeys(ctx, next); err != nil {
		return err
	}
	v.known = next
	return nil
}
