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

// PutToken stores a token under the SHA-256 of its secret. Both its id and the hash must be new, and the app it is bound to, if it
// is to one, must be there. A token's secret is not kept, so a repetition cannot be answered as the first one was: it is a Conflict.
func (s *Store) PutToken(ctx context.Context, tok agent.Token, secretHash [32]byte, once Once) error {
	if !isPart(string(tok.ID)) {
		return agent.Errorf(agent.Invalid, "token id %q is not valid", tok.ID)
	}
	tok.Created, tok.Expires = s.stampOr(tok.Created), stamp(tok.Expires)
	hash, now := hex.EncodeToString(secretHash[:]), s.now()
	return s.update(ctx, func(t *tx) error {
		switch made, err := t.made(once, tokens, noApp, now); {
		case err != nil:
			return err
		case made != "":
			return &agent.Error{
				Kind: agent.Conflict, Msg: "this idempotency key has made a token already, whose secret cannot be shown again",
				Hint: "if the secret was lost, delete that token and make one with a new key",
			}
		}
		if tok.App != "" {
			if err := t.mustHaveApp(tok.App); err != nil {
				return err
			}
		}
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
		if err := t.save(k, ord, tokenRecord{tok, hash}); err != nil {
			return err
		}
		return s.remember(t, once, tokens, noApp, string(tok.ID), ord, now)
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

// Tokens lists tokens, expired ones too, newest first; with app only those that are bound to it.
func (s *Store) Tokens(ctx context.Context, app agent.App, page agent.Page) (list []agent.Token, next string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		list, next, err = collectionPages(snap, tokens, noApp, page, func(_ int64, id string) (agent.Token, bool, error) {
			var rec tokenRecord
			_, err := record(snap, recKey(tokens, noApp, id), &rec)
			return rec.Token, app == "" || rec.App == app, err
		})
		return err
	})
	return list, next, err
}

// DeleteTokens deletes tokens, all or none, and returns them; with app only ones that are bound to it are there.
func (s *Store) DeleteTokens(ctx context.Context, app agent.App, ids ...agent.TokenID) (gone []agent.Token, err error) {
	err = s.update(ctx, func(t *tx) error {
		gone = nil
		seen := map[agent.TokenID]bool{}
		for _, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			var rec tokenRecord
			r, err := find(t, tokens, noApp, string(id), "token", &rec)
			if err == nil && app != "" && rec.App != app {
				err = notFound("token", string(id))
			}
			if err != nil {
				return err
			}
			gone = append(gone, rec.Token)
			t.del(byKey(byTokenHash, noApp, rec.Hash))
			if err := t.remove(tokens, noApp, string(id), r.ord); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}

// boundTo counts the tokens that are bound to an app.
func (t *tx) boundTo(app agent.App) (n int, err error) {
	all := join(prefixRec, string(tokens), string(noApp), "")
	err = t.below.each(all, prefixEnd(all), false, func(k key, payload []byte) error {
		var rec tokenRecord
		if _, err := parse(k, payload, &rec); err != nil {
			return err
		}
		if rec.App == app {
			n++
		}
		return nil
	})
	return n, err
}
