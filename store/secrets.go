package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Secret is a secret as the store keeps it: what is known of it, and which of its values are kept. The values are stored
// beside it, encrypted by the vault; the store never sees them.
type Secret struct {
	agent.Secret
	Rev      int64                 `json:"rev"`      // counts the changes
	Last     int                   `json:"last"`     // newest version there has been
	Versions []agent.SecretVersion `json:"versions"` // those that are kept, oldest first
	Seal     SecretSeal            `json:"seal"`
}

// SecretSeal is by what the vault notices that somebody else changed a secret.
type SecretSeal struct {
	Key  string `json:"key"` // fingerprint of the vault's key that Data is under
	Data []byte `json:"data"`
}

// KeysUsed returns the fingerprints of the keys that s is under, some more than once.
func (s Secret) KeysUsed() []string {
	ks := []string{s.Seal.Key}
	for _, v := range s.Versions {
		ks = append(ks, v.Key)
	}
	return ks
}

func (s Secret) has(version int) bool {
	return slices.ContainsFunc(s.Versions, func(v agent.SecretVersion) bool { return v.Version == version })
}

// OwnSecret begins the names of secrets that the vault keeps for the server itself; no person's can begin so.
const OwnSecret = "own:"

// SaveSecret stores sec, which was read at revision sec.Rev, or is new when that is 0, and the sealed values of versions
// that are new or were sealed anew. Values of versions that sec no longer lists are deleted. It is a Conflict error when the
// secret has changed since it was read, and an Exists error when there is one already that sec would be the first of.
func (s *Store) SaveSecret(ctx context.Context, sec Secret, sealed map[int][]byte) (Secret, error) {
	if err := checkApp(sec.App); err != nil {
		return Secret{}, err
	}
	if !strings.HasPrefix(sec.Name, OwnSecret) {
		if err := agent.CheckName("secret", sec.Name); err != nil {
			return Secret{}, err
		}
	}
	for n, b := range sealed {
		if len(b) == 0 || len(b) > maxBody || !sec.has(n) {
			return Secret{}, agent.Errorf(agent.Invalid, "version %d of secret %q cannot be stored with a value of %d bytes", n, sec.Name, len(b))
		}
	}
	if !sec.has(sec.Version) {
		return Secret{}, agent.Errorf(agent.Invalid, "secret %q has no version %d", sec.Name, sec.Version)
	}
	now := stamp(s.now())
	var out Secret
	err := s.update(ctx, func(t *tx) error {
		out = sec
		out.Rev, out.Created = sec.Rev+1, stamp(sec.Created)
		k := recKey(secrets, sec.App, sec.Name)
		var was Secret
		r, err := find(t, secrets, sec.App, sec.Name, "secret", &was)
		switch {
		case err == nil && sec.Rev == 0:
			return agent.Errorf(agent.Exists, "secret %q is there already", sec.Name)
		case err == nil && was.Rev != sec.Rev, agent.KindOf(err) == agent.NotFound && err != nil && sec.Rev != 0:
			return agent.Errorf(agent.Conflict, "secret %q was changed meanwhile", sec.Name)
		case err == nil:
			out.Created = was.Created
		case agent.KindOf(err) == agent.NotFound:
			if err := t.mustHaveApp(sec.App); err != nil {
				return err
			}
			out.Created, out.Updated = now, now
			if r.ord, err = t.insert(secrets, sec.App, sec.Name); err != nil {
				return err
			}
		default:
			return err
		}
		for _, v := range was.Versions {
			if !sec.has(v.Version) {
				t.del(sealedKey(sec.App, sec.Name, v.Version))
			}
		}
		for _, v := range sec.Versions {
			vk := sealedKey(sec.App, sec.Name, v.Version)
			if b := sealed[v.Version]; b != nil {
				t.put(vk, b)
			} else if _, err := mustGet(t, vk); err != nil {
				return err
			}
		}
		if err := keysKnown(t, k, out); err != nil {
			return err
		}
		return t.save(k, r.ord, out)
	})
	if err != nil {
		return Secret{}, err
	}
	return out, nil
}

// Secret returns the secret of that name.
func (s *Store) Secret(ctx context.Context, app agent.App, name string) (sec Secret, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		_, err := find(snap, secrets, app, name, "secret", &sec)
		return err
	})
	return sec, err
}

// SealedSecret returns a secret and the sealed values of the versions named, or of the current one when none is.
func (s *Store) SealedSecret(ctx context.Context, app agent.App, name string, versions ...int) (sec Secret, sealed map[int][]byte, err error) {
	sealed = map[int][]byte{}
	err = s.view(ctx, func(snap snapshot) error {
		if _, err := find(snap, secrets, app, name, "secret", &sec); err != nil {
			return err
		}
		if len(versions) == 0 {
			versions = []int{sec.Version}
		}
		for _, n := range versions {
			if !sec.has(n) {
				return agent.Errorf(agent.NotFound, "secret %q has no version %d", name, n)
			}
			b, err := mustGet(snap, sealedKey(app, name, n))
			if err != nil {
				return err
			}
			sealed[n] = slices.Clone(b)
		}
		return nil
	})
	if err != nil {
		return Secret{}, nil, err
	}
	return sec, sealed, nil
}

// Secrets lists an app's secrets, newest first.
func (s *Store) Secrets(ctx context.Context, app agent.App, page agent.Page) (list []Secret, next string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		list, next, err = collectionPages(snap, secrets, app, page, func(_ int64, name string) (sec Secret, _ bool, err error) {
			_, err = record(snap, recKey(secrets, app, name), &sec)
			return sec, true, err
		})
		return err
	})
	return list, next, err
}

// AllSecrets returns the secrets of every app.
func (s *Store) AllSecrets(ctx context.Context) (all []Secret, err error) {
	prefix := join(prefixRec, string(secrets), "")
	err = s.view(ctx, func(snap snapshot) error {
		return snap.each(prefix, prefixEnd(prefix), false, func(k key, payload []byte) error {
			var sec Secret
			_, err := parse(k, payload, &sec)
			all = append(all, sec)
			return err
		})
	})
	return all, err
}

// DeleteSecret deletes a secret with all its versions.
func (s *Store) DeleteSecret(ctx context.Context, app agent.App, name string) error {
	return s.update(ctx, func(t *tx) error { return t.deleteSecret(app, name) })
}

func (t *tx) deleteSecret(app agent.App, name string) error {
	var sec Secret
	r, err := find(t, secrets, app, name, "secret", &sec)
	if err != nil {
		return err
	}
	for _, v := range sec.Versions {
		t.del(sealedKey(app, name, v.Version))
	}
	return t.remove(secrets, app, name, r.ord)
}

// ownSecrets names the secrets of an app that the server keeps for itself. h is the head of the app's secrets.
func (t *tx) ownSecrets(app agent.App, h head) (names []string, err error) {
	for ord, left := int64(1), h.live; ord <= h.last && left > 0; ord++ {
		name, err := idAt(t, secrets, app, ord)
		if err != nil {
			return nil, err
		}
		if name != "" {
			left--
		}
		if strings.HasPrefix(name, OwnSecret) {
			names = append(names, name)
		}
	}
	return names, nil
}

// VaultKeys is what the store remembers of the keys that its secrets are under. None of it opens anything.
type VaultKeys struct {
	Current string     `json:"current"` // fingerprint of the key that new values are put under
	Keys    []VaultKey `json:"keys"`    // Current's, and until a re-wrap has ended those that it leaves
}

// VaultKey is one of them.
type VaultKey struct {
	ID      string    `json:"id"`     // fingerprint
	Source  string    `json:"source"` // where it was found
	Wrapped []byte    `json:"wrapped,omitempty"`
	Check   []byte    `json:"check"` // what only this key decrypts
	Created time.Time `json:"created"`
}

func (v VaultKeys) has(id string) bool {
	return slices.ContainsFunc(v.Keys, func(k VaultKey) bool { return k.ID == id })
}

// VaultKeys returns what PutVaultKeys stored last, or the zero value.
func (s *Store) VaultKeys(ctx context.Context) (v VaultKeys, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		_, _, err := lookup(snap, keyVault, &v)
		return err
	})
	return v, err
}

// PutVaultKeys remembers keys. It must name every key that a secret is under.
func (s *Store) PutVaultKeys(ctx context.Context, v VaultKeys) error {
	return s.update(ctx, func(t *tx) error { return t.save(keyVault, 0, v) })
}

// keysKnown checks that every key of the secret at k is remembered.
func keysKnown(g getter, k key, sec Secret) error {
	var known VaultKeys
	if _, err := record(g, keyVault, &known); err != nil {
		return err
	}
	for _, id := range sec.KeysUsed() {
		if !known.has(id) {
			return corrupt(k, "it is under key %q, of which %s knows nothing", id, keyVault)
		}
	}
	return nil
}

// checkSecret checks what a secret's record names.
func (s *Store) checkSecret(g getter, k key, payload []byte) error {
	var sec Secret
	if _, err := parse(k, payload, &sec); err != nil {
		return err
	}
	for _, v := range sec.Versions {
		if _, err := mustGet(g, sealedKey(sec.App, sec.Name, v.Version)); err != nil {
			return err
		}
	}
	if !sec.has(sec.Version) {
		return corrupt(k, "its version %d is not among those it lists", sec.Version)
	}
	return keysKnown(g, k, sec)
}

// sealed checks that each sealed value belongs to a secret that lists it.
func (v verifier) sealed() error {
	return v.walk(prefixSealed, func(k key, _ []byte) error {
		parts := k.parts(prefixSealed)
		n, ok := k.lastNumber()
		if len(parts) != 3 || !ok {
			return corrupt(k, "key names no version of a secret")
		}
		var sec Secret
		if _, err := record(v.snap, recKey(secrets, agent.App(parts[0]), parts[1]), &sec); err != nil {
			return err
		}
		if !sec.has(int(n)) {
			return corrupt(k, "its secret does not list it")
		}
		return nil
	})
}
