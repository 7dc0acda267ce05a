package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/vault"
)

// vaultOptions say where the key to the secrets is.
type vaultOptions struct {
	key string   // "" means vault.DefaultKey
	old []string // keys that secrets may still be under

	lost []string // fingerprints of keys that are gone for good
}

func (o *vaultOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.key, "vault-key", "", "the key to the secrets (SKEP_VAULT_KEY): file:PATH, age:PATH of an identity file, hcvault://HOST/transit/keys/NAME or aws-kms://ARN; file:~/.config/skep/vault.key, made at the first start, unless given")
	flags.StringArrayVar(&o.old, "vault-old-key", nil, "a further `KEY` that secrets may still be under (SKEP_VAULT_OLD_KEY); they are put under the one of --vault-key")
	flags.StringArrayVar(&o.lost, "vault-lost-key", nil, "`FINGERPRINT` of a key that is lost for good: the secrets that are under it are deleted, which nobody can read any more")
}

// resolve fills in what the environment says, and makes paths absolute.
func (o *vaultOptions) resolve() (err error) {
	o.key = or(o.key, os.Getenv("SKEP_VAULT_KEY"))
	if old := os.Getenv("SKEP_VAULT_OLD_KEY"); old != "" && len(o.old) == 0 {
		o.old = []string{old}
	}
	if o.key != "" {
		o.key, err = absKey(o.key)
	}
	for i := range o.old {
		if err == nil {
			o.old[i], err = absKey(o.old[i])
		}
	}
	return err
}

// absKey makes the path of a key absolute. "~/" is the home directory, for no shell replaces it behind a colon.
func absKey(source string) (string, error) {
	scheme, path, _ := strings.Cut(source, ":")
	if path == "" || scheme != "file" && scheme != "age" {
		return source, nil
	}
	if below, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", usageError("%s: there is no home directory", source)
		}
		path = filepath.Join(home, below)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", usageError("%s: %v", source, err)
	}
	return scheme + ":" + abs, nil
}

// openVault opens the vault of a server's store. What it changes goes to the audit log.
func openVault(ctx context.Context, st *store.Store, o serveOptions, audit func(context.Context, agent.App, agent.Event) error) (*vault.Vault, error) {
	key := o.vault.key
	if key == "" && o.store == "memory" {
		key = "memory"
	}
	return vault.Open(ctx, st, &vault.Options{
		Key: key, OldKeys: o.vault.old, LostKeys: o.vault.lost, Dir: o.dir, Log: o.log,
		Audit: func(ctx context.Context, app agent.App, c agent.Change) error {
			b, err := json.Marshal(c)
			if err != nil {
				return err
			}
			return audit(ctx, app, agent.Event{Kind: agent.EventChanged, Data: b})
		},
	})
}
