package store

import (
	"crypto/sha256"
	"time"

	"github.com/skep-dev/skep/agent"
)

// OnceFor is how long an idempotency key is remembered.
const OnceFor = 24 * time.Hour

// Once makes a creation happen once: a second one with the same Scope and Key returns what the first one made. The same
// key with another Request is a Conflict. The zero Once asks for nothing.
type Once struct {
	Scope, Key string
	Request    agent.Digest // of what is asked for
}

func (o Once) hash() [32]byte { return sha256.Sum256([]byte(o.Scope + "\x00" + o.Key)) }

// onceRecord says what a key made.
type onceRecord struct {
	Request agent.Digest `json:"request"`
	Space   space        `json:"space"`
	App     agent.App    `json:"app"`
	ID      string       `json:"id"`
	Ordinal int64        `json:"ordinal"`
	Until   int64        `json:"until"` // Unix seconds
}

// made returns the id of the record that o has made already, or "".
func (t *tx) made(o Once, sp space, app agent.App, now time.Time) (id string, err error) {
	if o.Key == "" {
		return "", nil
	}
	k := onceKey(o.hash())
	var rec onceRecord
	_, found, err := lookup(t, k, &rec)
	if err != nil || !found || rec.Until <= now.Unix() {
		return "", err
	}
	if rec.Request != o.Request || rec.Space != sp || rec.App != app {
		return "", &agent.Error{
			Kind: agent.Conflict, Msg: "this idempotency key was used for another request",
			Hint: "use a new key for a new request",
		}
	}
	if id, err = idAt(t, sp, app, rec.Ordinal); err != nil {
		return "", err
	}
	if id == "" {
		return "", agent.Errorf(agent.Conflict, "what this idempotency key made has been deleted since")
	}
	return rec.ID, nil
}

// remember notes that o made the record id, and forgets a few keys whose time is over.
func (s *Store) remember(t *tx, o Once, sp space, app agent.App, id string, ord int64, now time.Time) error {
	if o.Key == "" {
		return nil
	}
	if err := s.forget(t, now); err != nil {
		return err
	}
	hash, until := o.hash(), now.Add(OnceFor).Unix()
	t.put(onceUntilKey(until, hash), nil)
	return t.save(onceKey(hash), 0, onceRecord{o.Request, sp, app, id, ord, until})
}

// forget deletes keys whose time is over, at most 16. It starts where it stopped last time, because a database like
// Badger is slow to step over deleted keys.
func (s *Store) forget(t *tx, now time.Time) error {
	from := s.onceFrom.Load()
	n, last := 0, now.Unix()
	err := t.below.each(prefixOnceUntil+number(from), prefixOnceUntil+number(last), false, func(k key, _ []byte) error {
		parts := k.parts(prefixOnceUntil)
		at, ok := key(parts[0]).lastNumber()
		if len(parts) != 2 || !ok {
			return corrupt(k, "key is not an end and a hash")
		}
		if n == 16 {
			last = at
			return errStop
		}
		n++
		old := prefixOnce + key(parts[1])
		var rec onceRecord
		_, found, err := lookup(t, old, &rec)
		if err != nil {
			return err
		}
		if found && rec.Until == at { // else the key has been used again
			t.del(old)
		}
		t.del(k)
		return nil
	})
	if err == nil {
		// What this transaction deletes is still there if it fails: do not step past it yet.
		s.onceFrom.Store(max(from, last-int64(time.Hour/time.Second)))
	}
	return err
}
