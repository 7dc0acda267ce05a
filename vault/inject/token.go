package inject

import (
	"context"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

const (
	early    = time.Minute      // before a token expires, it is not used any more
	pause    = time.Second      // after an exchange that failed, its error stands for this long
	youngest = 10 * time.Second // a rejected token that is younger is kept, so that a target cannot have tokens made at will
)

// token is what a secret was exchanged for.
type token struct {
	text    string
	cleaner *scrub.Scrubber // of the token and of what was sent for it
	since   time.Time
	until   time.Time
}

type tokenKey struct {
	app  agent.App
	name string
}

// tokens keeps one token for each secret. At most one exchange of a secret is under way at a time; who waits for it gets
// what it got, be it a token or an error.
type tokens struct {
	mu   sync.Mutex
	kept map[tokenKey]*tokenTurn
}

type tokenTurn struct {
	turn chan struct{} // holds one element while an exchange is under way

	mu    sync.Mutex
	value string // of the secret that the rest is about
	token token
	err   error // of the last exchange, when it failed
	at    time.Time
}

func (t *tokens) of(key tokenKey) *tokenTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.kept[key]
	if k == nil {
		if t.kept == nil {
			t.kept = map[tokenKey]*tokenTurn{}
		}
		k = &tokenTurn{turn: make(chan struct{}, 1)}
		t.kept[key] = k
	}
	return k
}

// get returns the token of a secret with a value, from exchange when there is none that is still good.
func (t *tokens) get(ctx context.Context, key tokenKey, value string, exchange func(context.Context) (token, error)) (token, error) {
	k := t.of(key)
	if tok, err := k.state(value); tok.good() || err != nil {
		return tok, err
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return token{}, agent.Wrap(agent.Cancelled, context.Cause(ctx), "cancelled while a token was got")
	}
	if tok, err := k.state(value); tok.good() || err != nil {
		return tok, err
	}
	tok, err := exchange(ctx)
	if err != nil && ctx.Err() != nil { // it failed for this caller alone
		return token{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.value, k.token, k.err, k.at = value, tok, err, time.Now()
	return tok, err
}

// state returns the token there is for a value, or the error that stands for one.
func (k *tokenTurn) state(value string) (token, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.value != value {
		return token{}, nil
	}
	if k.err != nil && time.Since(k.at) < pause {
		return token{}, k.err
	}
	return k.token, nil
}

func (t token) good() bool { return t.text != "" && time.Now().Before(t.until) }

func (t *tokens) drop(key tokenKey) {
	t.mu.Lock()
	k := t.kept[key]
	t.mu.Unlock()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.token.since) >= youngest {
		k.token = token{}
	}
}

// life returns until when a token that expires is used.
func life(now, expires time.Time) time.Time {
	if left := expires.Sub(now); left < 2*early {
		return now.Add(left / 2)
	}
	return expires.Add(-early)
}
