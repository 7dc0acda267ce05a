// Package link makes links by which a person answers one question and can do nothing else. A link's text is a capability: it names the
// question and what exactly was asked, under an HMAC-SHA256 (RFC 2104) of a key that never leaves the server. It gives no right to anything that
// the question itself does not ask, and is worth nothing once that is answered, has changed, or the link's time is up.
package link

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skep-dev/skep/agent"
)

// How long links last.
const (
	Default = 15 * time.Minute
	Max     = 24 * time.Hour
)

// KeySize is the least size of a key, in bytes.
const KeySize = 32

// MaxText is the most characters that a link's text has.
const MaxText = 640

const (
	version   = 1
	nonceSize = 12
	purpose   = "skep approval link\x00" // no other use of the key makes the same code
	fixed     = 1 + nonceSize + 8 + sha256.Size
)

// Link is what a link's text says.
type Link struct {
	App     agent.App
	ID      agent.ApprovalID
	Name    string    // of this link, for logs: it lets nobody in
	Expires time.Time // whole seconds
	asked   [sha256.Size]byte
}

// Make returns a link to an open question, and its text, which is URL-safe. It lasts as long as it is told to, 15 minutes for 0 and at most
// a day, but no longer than the question.
func Make(key []byte, a agent.Approval, lasts time.Duration, now time.Time) (Link, string, error) {
	switch {
	case len(key) < KeySize:
		return Link{}, "", fmt.Errorf("the key of links has %d bytes, fewer than %d", len(key), KeySize)
	case lasts == 0:
		lasts = Default
	case lasts < time.Second || lasts > Max:
		return Link{}, "", agent.Errorf(agent.Invalid, "a link lasts from 1s to %s, not %s", Max, lasts)
	case len(a.App) > 255 || len(a.ID) > 255:
		return Link{}, "", agent.Errorf(agent.Invalid, "the names of the question are too long for a link")
	}
	l := Link{App: a.App, ID: a.ID, Expires: now.Add(lasts), asked: subject(a)}
	if a.Expires.Before(l.Expires) && !a.Expires.IsZero() {
		l.Expires = a.Expires
	}
	l.Expires = l.Expires.UTC().Truncate(time.Second)
	if !now.Before(l.Expires) {
		return Link{}, "", &agent.Error{Kind: agent.Conflict, Msg: "the time to answer this question is up", Hint: "start the run again, and it asks again"}
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	l.Name = hex.EncodeToString(nonce[:6])

	b := append([]byte{version}, nonce[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Expires.Unix()))
	b = append(b, l.asked[:]...)
	b = append(append(b, byte(len(a.App))), a.App...)
	b = append(append(b, byte(len(a.ID))), a.ID...)
	b = append(b, sign(key, b)...)
	return l, base64.RawURLEncoding.EncodeToString(b), nil
}

// Open reads a link's text. One that this key did not make, or that was altered since, is a Denied error, as is one whose time is up.
func Open(key []byte, text string, now time.Time) (Link, error) {
	foreign := &agent.Error{
		Kind: agent.Denied, Msg: "this is no link of this server, or not all of it", Hint: "open it as it was sent to you, or ask for a new one",
	}
	if len(text) > MaxText || len(key) < KeySize {
		return Link{}, foreign
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < fixed+2+sha256.Size {
		return Link{}, foreign
	}
	b, code := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if !hmac.Equal(code, sign(key, b)) || b[0] != version {
		return Link{}, foreign
	}
	l := Link{Name: hex.EncodeToString(b[1:7]), Expires: time.Unix(int64(binary.BigEndian.Uint64(b[1+nonceSize:])), 0).UTC()}
	copy(l.asked[:], b[1+nonceSize+8:])
	app, rest, ok := text255(b[fixed:])
	id, rest, ok2 := text255(rest)
	if !ok || !ok2 || len(rest) > 0 {
		return Link{}, foreign
	}
	l.App, l.ID = agent.App(app), agent.ApprovalID(id)
	if !now.Before(l.Expires) {
		return Link{}, &agent.Error{
			Kind: agent.Denied, Msg: "this link has expired, at " + l.Expires.Format(time.RFC3339), Hint: "ask for a new one: links are short-lived",
		}
	}
	return l, nil
}

// Check returns a Conflict error unless a is the question that the link was made for, as it was then: the same calls of the same
// definitions of tools, with the same bytes of arguments.
func (l Link) Check(a agent.Approval) error {
	asked := subject(a)
	if a.App != l.App || a.ID != l.ID || !hmac.Equal(asked[:], l.asked[:]) {
		return &agent.Error{
			Kind: agent.Conflict, Msg: "what is asked is not what this link was made for", Hint: "ask for a new link, and look at what it shows",
		}
	}
	return nil
}

func sign(key, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(purpose))
	h.Write(b)
	return h.Sum(nil)
}

func text255(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

// subject digests what is asked. Each part goes in with its length before it, so that no two questions give the same bytes.
func subject(a agent.Approval) (out [sha256.Size]byte) {
	h := sha256.New()
	put := func(parts ...string) {
		for _, p := range parts {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
			h.Write([]byte(p))
		}
	}
	put(string(a.App), a.Agent, string(a.Session), string(a.Run), string(a.ID), a.Title, a.Created.UTC().Format(time.RFC3339Nano))
	put(fmt.Sprint(len(a.Calls)))
	for _, c := range a.Calls {
		what := c.Decision.Effect.String()
		if c.Undo {
			what += " undo"
		}
		put(c.Tool, string(c.Digest), string(c.ArgsDigest), stored(c.Args), what)
	}
	if q := a.Asks; q != nil {
		put("question", q.Server, q.Message, stored(q.Schema), q.URL)
	}
	h.Sum(out[:0])
	return out
}

// stored is a JSON value as it comes back from the store, whether it has been there or not.
func stored(v json.RawMessage) string {
	b, err := json.Marshal(v)
	if err != nil {
		return string(v)
	}
	return string(b)
}
