// Package vault keeps secrets: values that agents may use and nobody can read. Each version of a value is encrypted with a key
// of its own, which is encrypted with the vault's key (package kek), and is bound to its app, name, version and kind, so that
// one put in another's place is refused; what a secret is bound to is under a seal. The store has only ciphertext.
//
// Values leave through Material alone, for the host to put into a request.
package vault

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/vault/kek"
)

// Options tune a Vault. nil and zero fields mean the defaults.
type Options struct {
	Key     string   // where the key is, as package kek says; "" means DefaultKey
	OldKeys []string // further keys that secrets may still be under
	// LostKeys are fingerprints of keys that are gone for good. Secrets that are under one of them are deleted by Open, unless
	// the key is among those it was given after all.
	LostKeys []string
	Dir      string // the data directory, in which no key may be
	// Audit is called before each change, with whose it is and what it does, and must have made that durable when it returns;
	// its error stops the change. nil keeps no account.
	Audit func(context.Context, agent.App, agent.Change) error
	Log   *slog.Logger // nil says nothing

	Env  func(string) string // nil means os.Getenv
	HTTP *http.Client        // for key services
	Now  func() time.Time    // nil means time.Now
}

// DefaultKey is a key in a file of the user's own configuration.
func DefaultKey() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", &agent.Error{
			Kind: agent.Invalid, Msg: "vault key: there is no place for it", Err: err, Hint: "name one with --vault-key file:/PATH or SKEP_VAULT_KEY",
		}
	}
	return "file:" + filepath.Join(dir, "skep", "vault.key"), nil
}

// Vault is safe for concurrent use.
type Vault struct {
	st     *store.Store
	o      Options
	opener *kek.Opener
	cache  cache

	rewrapping sync.Mutex // held by the one re-wrap; taken before write
	write      sync.Mutex // held by each change; taken before mu
	known      store.VaultKeys

	mu      sync.RWMutex
	keys    map[string]*kek.Key // that are open, by fingerprint
	current string              // fingerprint of the one that new values are put under
	noKey   error               // why there is none, or nil

	made string // source of a key that Open made
}

// Open opens the vault of a store, with every key that a secret is under: without one it is an error that says which is
// missing, unless that one is lost. In a store without secrets any key will do, and where the default one cannot be had, the vault opens and refuses
// secrets. A re-wrap that was under way is ended here. Open starts no goroutine.
func Open(ctx context.Context, st *store.Store, o *Options) (*Vault, error) {
	v := &Vault{st: st, keys: map[string]*kek.Key{}}
	if o != nil {
		v.o = *o
	}
	if v.o.Log == nil {
		v.o.Log = slog.New(slog.DiscardHandler)
	}
	if v.o.Now == nil {
		v.o.Now = time.Now
	}
	v.opener = &kek.Opener{Dir: v.o.Dir, Env: v.o.Env, HTTP: v.o.HTTP, Now: v.o.Now}
	for _, source := range append([]string{v.o.Key}, v.o.OldKeys...) {
		if h := kek.Host(source); h != "" {
			v.opener.Hosts = append(v.opener.Hosts, h)
		}
	}
	if err := v.unlock(ctx); err != nil {
		return nil, err
	}
	if v.noKey != nil {
		return v, nil
	}
	v.rewrapping.Lock()
	defer v.rewrapping.Unlock()
	if done, err := v.finish(ctx); err != nil {
		v.o.Log.Warn("vault: secrets are still under a key that is to be left", "err", err)
	} else if done.Versions > 0 {
		v.o.Log.Info("vault: secrets were put under the key in use", "key", done.Key, "secrets", done.Secrets, "versions", done.Versions)
	}
	return v, nil
}

// NewKey returns where the key is that Open made because there was none, or "".
func (v *Vault) NewKey() string { return v.made }

// Close forgets what was decrypted. It may be called twice; Material works no more afterwards.
func (v *Vault) Close() {
	v.mu.Lock()
	v.noKey = agent.Errorf(agent.Unavailable, "the vault is closed")
	v.mu.Unlock()
	v.cache.close()
}

// now is the time as it is stored.
func (v *Vault) now() time.Time { return v.o.Now().UTC().Round(0) }

// usable returns the key that new values are put under.
func (v *Vault) usable() (*kek.Key, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.noKey != nil {
		return nil, v.noKey
	}
	return v.keys[v.current], nil
}

// key returns an open key, or nil.
func (v *Vault) key(id string) *kek.Key {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.keys[id]
}

// Info is a secret and what versions of it are kept, oldest first.
type Info struct {
	agent.Secret
	Versions []agent.SecretVersion `json:"versions"`
}

func infoOf(s store.Secret) Info {
	if s.Bindings == nil {
		s.Bindings = []agent.Binding{}
	}
	return Info{s.Secret, slices.Clone(s.Versions)}
}

// Get returns what is known of a secret.
func (v *Vault) Get(ctx context.Context, app agent.App, name string) (Info, error) {
	if err := unknown(name); err != nil {
		return Info{}, err
	}
	s, err := v.st.Secret(ctx, app, name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(s), nil
}

// List lists an app's secrets, newest first. A page may hold fewer than there is room for.
func (v *Vault) List(ctx context.Context, app agent.App, page agent.Page) ([]agent.Secret, string, error) {
	all, next, err := v.st.Secrets(ctx, app, page)
	list := make([]agent.Secret, 0, len(all))
	for _, s := range all {
		if !own(s.Name) {
			list = append(list, infoOf(s).Secret)
		}
	}
	return list, next, err
}
