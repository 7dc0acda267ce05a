package store

import (
	"context"
	"encoding/hex"

	"github.com/skep-dev/skep/agent"
)

// tokenRecord is a token with the hash that finds it.
type tokenRecord struct {
	agent.Token
	Hash string `json:"hash"`
}

// PutToken stores a token under the SHA-256 of its secret. Both its id and the hash must be new.
func (s *Store) PutToken(ctx context.Context, tok agent.Token, secretHash [32]byte) error {
	if !isPart(string(tok.ID)) {
		return agent.Errorf(agent.Invalid, "token id %q is not valid", tok.ID)
	}
	tok.Created, tok.Expires = s.stampOr(tok.Created), stamp(tok.Expires)
	hash := hex.EncodeToString(secretHash[:])
	return s.update(ctx, func(t *tx) error {
		k, by := recKey(tokens, noApp, string(tok.ID)), byKey(byTokenHash, noApp, hash)
		for _, k := range []key{k, by} {
			if _, found, err := t.get(k); err != nil {
				return err
			} else if found {
				return agent.Errorf(agent.Exists, "token %s is there already", tok.ID)
			}
		}
		ord, err := t.insert(tokens, noApp, string(tok.ID))
		if err != nil {
			return err
		}
		t.put(by, []byte(tok.ID))
		return t.save(k, ord, tokenRecord{tok, hash})
	})
}

// TokenByHash returns the token whose secret has that hash. It is an Unauthenticated error when there is none, or when it
// has expired.
func (s *Store) TokenByHash(ctx context.Context, secretHash [32]byte) (agent.Token, error) {
	var rec tokenRecord
	err := s.view(ctx, func(snap snapshot) error {
		id, found, err := snap.get(byKey(byTokenHash, noApp, hex.EncodeToString(secretHash[:])))
		if err != nil {
			return err
		}
		if !found {
			return agent.Errorf(agent.Unauthenticated, "the token is not known")
		}
		_, err = record(snap, recKey(tokens, noApp, string(id)), &rec)
		return err
	})
	if err == nil && !rec.Expires.IsZero() && !s.now().Before(rec.Expires) {
		err = agent.Errorf(agent.Unauthenticated, "the token has expired")
	}
	if err != nil {
		return agent.Token{}, err
	}
	return rec.Token, nil
}

// Tokens lists all tokens, expired ones too, newest first.
func (s *Store) Tokens(ctx context.Context, page agent.Page) (list []agent.Token, next string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		list, next, err = collectionPages(snap, tokens, noApp, page, func(_ int64, id string) (agent.Token, bool, error) {
			var rec tokenRecord
			_, err := record(snap, recKey(tokens, noApp, id), &rec)
			return rec.Token, true, err
		})
		return err
	})
	return list, next, err
}

// DeleteTokens deletes tokens, all or none.
func (s *Store) DeleteTokens(ctx context.Context, ids ...agent.TokenID) error {
	return s.update(ctx, func(t *tx) error {
		seen := map[agent.TokenID]bool{}
		for _, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			var rec tokenRecord
			r, err := find(t, tokens, noApp, string(id), "token", &rec)
			if err != nil {
				return err
			}
			t.del(byKey(byTokenHash, noApp, rec.Hash))
			if err := t.remove(tokens, noApp, string(id), r.ord); err != nil {
				return err
			}
		}
		return nil
	})
}
