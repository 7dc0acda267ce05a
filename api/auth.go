package api

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// tokens answers whose token a secret is. It keeps what the store said in memory, by the secret's hash, until the token
// expires or is deleted through it. Looking up by hash leaks nothing of a secret by its timing.
type tokens struct {
	st  *store.Store
	now func() time.Time

	mu    sync.RWMutex
	known map[[32]byte]agent.Token
	gen   int // counts deletions, so that a lookup that began before one keeps nothing
}

// maxKnown bounds the cache; tokens beyond it are looked up in the store each time a full cache was dropped.
const maxKnown = 10_000

func newTokens(st *store.Store, now func() time.Time) *tokens {
	return &tokens{st: st, now: now, known: map[[32]byte]agent.Token{}}
}

// authenticate returns the token that an Authorization header carries.
func (t *tokens) authenticate(ctx context.Context, header string) (agent.Token, error) {
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return agent.Token{}, &agent.Error{
			Kind: agent.Unauthenticated, Msg: "this needs a token",
			Hint: "send the header Authorization: Bearer TOKEN; the owner's token is in owner.token in the data directory",
		}
	}
	hash := secretHash(secret)
	t.mu.RLock()
	tok, found := t.known[hash]
	gen := t.gen
	t.mu.RUnlock()
	if !found {
		var err error
		tok, err = t.st.TokenByHash(ctx, hash)
		if err != nil {
			return agent.Token{}, err
		}
		t.keep(hash, tok, gen)
	}
	if !tok.Expires.IsZero() && !t.now().Before(tok.Expires) {
		t.mu.Lock()
		delete(t.known, hash)
		t.mu.Unlock()
		return agent.Token{}, &agent.Error{Kind: agent.Unauthenticated, Msg: "the token has expired", Hint: "ask for a new one"}
	}
	return tok, nil
}

func (t *tokens) keep(hash [32]byte, tok agent.Token, gen int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gen != t.gen {
		return
	}
	if len(t.known) >= maxKnown {
		clear(t.known)
	}
	t.known[hash] = tok
}

// remove deletes tokens, here and in the store, and returns them; with app only ones that are bound to it. Once it has returned
// they no longer work.
func (t *tokens) remove(ctx context.Context, app agent.App, ids ...agent.TokenID) ([]agent.Token, error) {
	gone, err := t.st.DeleteTokens(ctx, app, ids...) // a failed commit may have happened: forget either way
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gen++
	maps.DeleteFunc(t.known, func(_ [32]byte, tok agent.Token) bool {
		for _, id := range ids {
			if tok.ID == id {
				return true
			}
		}
		return false
	})
	return gone, err
}
