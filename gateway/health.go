package gateway

import (
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

const (
	breakAfter  = 5                // failures in a row after which a provider is left alone
	breakFirst  = 10 * time.Second // for so long
	breakMost   = time.Minute      // doubling up to this
	quotaPause  = time.Hour        // of a key without credit, when nobody says until when
	authPause   = 10 * time.Minute // of a key that was refused; another value of the secret ends it
	longestRest = 31 * 24 * time.Hour
)

// health is how a provider fares: whether calls to it succeed, and which of its keys are good.
type health struct {
	mu    sync.Mutex
	keys  []*key
	fails int       // in a row
	open  time.Time // until when no call goes to it
	rest  time.Duration
	probe bool // one call finds out whether it is well again
}

// key is one of a provider's keys. Its fields are guarded by health's mu.
type key struct {
	agent.ProviderKey
	until   time.Time        // not used before
	refused agent.FaultClass // why, when it was the account
	was     string           // the value that was refused
	limited int              // times in a row
	used    scrubbed
}

// scrubbed is a value and what takes it out of what comes back.
type scrubbed struct {
	value string
	scrub *scrub.Scrubber
}

func newHealth(keys []agent.ProviderKey) *health {
	h := &health{}
	for _, k := range keys {
		h.keys = append(h.keys, &key{ProviderKey: k})
	}
	return h
}

func (h *health) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails, h.open, h.rest, h.probe = 0, time.Time{}, 0, false
	for _, k := range h.keys {
		k.until, k.refused, k.limited, k.was = time.Time{}, agent.NoFault, 0, ""
	}
}

// admit reports whether a call may go to the provider, and otherwise from when on one may. A call that was admitted ends with succeeded, failed or left.
func (h *health) admit(now time.Time) (bool, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.fails < breakAfter:
		return true, time.Time{}
	case now.Before(h.open):
		return false, h.open
	case h.probe:
		return false, now.Add(time.Second)
	}
	h.probe = true
	return true, time.Time{}
}

func (h *health) succeeded(k *key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails, h.rest, h.probe = 0, 0, false
	if k != nil {
		k.limited = 0
	}
}

func (h *health) failed(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fails++; h.fails < breakAfter {
		return
	}
	if h.probe || h.rest == 0 {
		h.rest = min(max(2*h.rest, breakFirst), breakMost)
	}
	h.open, h.probe = now.Add(h.rest), false
}

// left ends a call that says nothing about the provider.
func (h *health) left() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probe = false
}

// isOpen reports whether calls are kept from the provider.
func (h *health) isOpen(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fails >= breakAfter && now.Before(h.open)
}

// pick returns a key that may be used, drawn by weight from those that are not in tried; the one called first before all others. Without one it returns
// when the next may be used, zero for never. ok with a nil key means that the provider has none.
func (h *health) pick(now time.Time, first string, tried map[*key]bool, random float64) (k *key, next time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.keys) == 0 {
		return nil, time.Time{}, true
	}
	total := 0
	for _, x := range h.keys {
		switch {
		case tried[x]:
		case now.Before(x.until):
			if x.refused == agent.NoFault && (next.IsZero() || x.until.Before(next)) {
				next = x.until
			}
		case first != "" && x.Secret == first:
			return x, time.Time{}, true
		default:
			total += weight(x.Weight)
		}
	}
	draw := int(random * float64(total))
	for _, x := range h.keys {
		if tried[x] || now.Before(x.until) {
			continue
		}
		if draw -= weight(x.Weight); draw < 0 {
			return x, time.Time{}, true
		}
	}
	return nil, next, false
}

func weight(w int) int { return max(w, 1) }

// limit keeps a key from being used for a while, and returns how long.
func (h *health) limit(k *key, now time.Time, after, backoff time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after <= 0 {
		after = backoff << min(k.limited, 6)
	}
	k.limited++
	after = min(after, longestRest)
	if until := now.Add(after); until.After(k.until) {
		k.until = until
	}
	return after
}

// refuse keeps a key that the provider refuses from being used until a time, which it returns. It reports whether the key was good until now.
func (h *health) refuse(k *key, now time.Time, why agent.FaultClass, after time.Duration) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rest := authPause
	if why == agent.QuotaExhausted {
		rest = quotaPause
	}
	if after > 0 {
		rest = min(after, longestRest)
	}
	fresh := !now.Before(k.until) || k.refused == agent.NoFault
	k.until, k.refused, k.was = now.Add(rest), why, k.used.value
	return k.until, fresh
}

// use notes the value that a key has now, and returns what takes it out of answers.
func (h *health) use(k *key, value string) *scrub.Scrubber {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k.used.value != value || k.used.scrub == nil {
		k.used = scrubbed{value, scrub.New([]byte(value))}
	}
	return k.used.scrub
}

// renewed makes refused keys usable again whose value, as get returns it, is another one than was refused.
func (h *health) renewed(now time.Time, get func(secret string) string) {
	h.mu.Lock()
	var check []*key
	for _, k := range h.keys {
		if k.refused == agent.AuthFault && now.Before(k.until) {
			check = append(check, k)
		}
	}
	h.mu.Unlock()
	for _, k := range check {
		value := get(k.Secret)
		h.mu.Lock()
		if value != "" && value != k.was {
			k.until, k.refused, k.was = time.Time{}, agent.NoFault, ""
		}
		h.mu.Unlock()
	}
}

// spent reports whether the accounts of all keys have no credit left.
func (h *health) spent(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.keys {
		if k.refused != agent.QuotaExhausted || !now.Before(k.until) {
			return false
		}
	}
	return len(h.keys) > 0
}

// tell counts the keys that are refused now.
func (h *health) refusedKeys(now time.Time) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.keys {
		if k.refused != agent.NoFault && now.Before(k.until) {
			n++
		}
	}
	return n
}
