package main

import (
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault"
)

// toolTokens keeps in the vault what servers of tools have given Skep, under names that nothing but this can name.
type toolTokens struct{ vault *vault.Vault }

func tokenName(server, user string) string { return "oauth:" + server + ":" + user }

func (t toolTokens) Load(ctx context.Context, app agent.App, server, user string) ([]byte, error) {
	return t.vault.Own(ctx, app, tokenName(server, user))
}

func (t toolTokens) Save(ctx context.Context, app agent.App, server, user string, b []byte) error {
	return t.vault.SetOwn(ctx, app, tokenName(server, user), b)
}

func (t toolTokens) Delete(ctx context.Context, app agent.App, server, user string) error {
	err := t.vault.DeleteOwn(ctx, app, tokenName(server, user))
	if agent.KindOf(err) == agent.NotFound {
		return nil
	}
	return err
}

func (t toolTokens) DeleteAll(ctx context.Context, app agent.App, server string) error {
	_, err := t.vault.DeleteAllOwn(ctx, app, tokenName(server, ""))
	return err
}
