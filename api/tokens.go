package api

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// newToken is what a caller says of a token to make.
type newToken struct {
	Name    string    `json:"name"`
	Expires time.Time `json:"expires,omitzero" doc:"never, unless given"`
}

// tokenSecret is a new token with its secret.
type tokenSecret struct {
	agent.Token
	Secret string `json:"secret" doc:"shown this once"`
}

type createTokenRequest struct {
	Once store.Once `once:"-"`
	Body newToken   `body:"json"`
}

func (s *Server) createToken(ctx context.Context, q createTokenRequest) (tokenSecret, error) {
	now := s.o.Now().UTC()
	t := agent.Token{ID: agent.NewTokenID(now), Name: q.Body.Name, Created: now, Expires: q.Body.Expires}
	if err := agent.CheckName("token", t.Name); err != nil {
		return tokenSecret{}, err
	}
	if !t.Expires.IsZero() && !t.Expires.After(now) {
		return tokenSecret{}, agent.Errorf(agent.Invalid, "field %q is in the past", "expires")
	}
	if err := s.spent.take(q.Once, now); err != nil {
		return tokenSecret{}, err
	}
	secret := newSecret()
	if err := s.st.PutToken(ctx, t, secretHash(secret)); err != nil {
		s.spent.giveBack(q.Once)
		return tokenSecret{}, err
	}
	return tokenSecret{t, secret}, nil
}

func (s *Server) listTokens(ctx context.Context, q pageQuery) (list[agent.Token], error) {
	return listOf(s.st.Tokens(ctx, q.page()))
}

type tokenRequest struct {
	ID agent.TokenID `path:"id"`
}

func (s *Server) deleteToken(ctx context.Context, q tokenRequest) (nothing, error) {
	return nothing{}, s.tokens.remove(ctx, q.ID)
}

type tokenIDs struct {
	IDs []agent.TokenID `json:"ids"`
}

type deleteTokensRequest struct {
	Body tokenIDs `body:"json"`
}

func (s *Server) deleteTokens(ctx context.Context, q deleteTokensRequest) (nothing, error) {
	return nothing{}, s.tokens.remove(ctx, q.Body.IDs...)
}

// spentKeys remembers which idempotency keys made tokens. A token's secret is not kept, so a repetition cannot be answered
// as the first request was: it is refused. A restart forgets the keys; a repetition then makes a token that nobody needs.
type spentKeys struct {
	mu    sync.Mutex
	until map[store.Once]time.Time // the Request field is left out
}

func (k *spentKeys) take(o store.Once, now time.Time) error {
	if o.Key == "" {
		return nil
	}
	o.Request = ""
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.until, func(_ store.Once, t time.Time) bool { return !now.Before(t) })
	if _, found := k.until[o]; found {
		return &agent.Error{
			Kind: agent.Conflict, Msg: "this idempotency key has made a token already, whose secret cannot be shown again",
			Hint: "if the secret was lost, delete that token and make one with a new key",
		}
	}
	if k.until == nil {
		k.until = map[store.Once]time.Time{}
	}
	k.until[o] = now.Add(store.OnceFor)
	return nil
}

func (k *spentKeys) giveBack(o store.Once) {
	o.Request = ""
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.until, o)
}
