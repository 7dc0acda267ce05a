package agent

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// AgentID, SessionID, RunID and TokenID are ULIDs made by the server; they sort by creation time.
type (
	AgentID   string
	SessionID string
	RunID     string
	TokenID   string
)

var (
	idMu      sync.Mutex
	idEntropy = ulid.Monotonic(rand.Reader, 0)
)

func newULID(now time.Time) string {
	idMu.Lock()
	defer idMu.Unlock()
	id, err := ulid.New(ulid.Timestamp(now), idEntropy)
	if err != nil { // the monotonic part overflowed within one millisecond
		id = ulid.MustNew(ulid.Timestamp(now), rand.Reader)
	}
	return id.String()
}

func NewAgentID(now time.Time) AgentID     { return AgentID(newULID(now)) }
func NewSessionID(now time.Time) SessionID { return SessionID(newULID(now)) }
func NewRunID(now time.Time) RunID         { return RunID(newULID(now)) }
func NewTokenID(now time.Time) TokenID     { return TokenID(newULID(now)) }

// NewModelCall returns an id for a call to a provider of models: a ULID.
func NewModelCall(now time.Time) string { return newULID(now) }

// Digest is a content address: "sha256:" and 64 hex digits.
type Digest string

const digestPrefix = "sha256:"

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest {
	s := sha256.Sum256(b)
	return Digest(digestPrefix + hex.EncodeToString(s[:]))
}

// Hex returns the digits without the prefix, or "" when d is not a digest.
func (d Digest) Hex() string {
	if len(d) != len(digestPrefix)+64 || d[:len(digestPrefix)] != digestPrefix {
		return ""
	}
	h := string(d[len(digestPrefix):])
	if b, err := hex.DecodeString(h); err != nil || hex.EncodeToString(b) != h {
		return ""
	}
	return h
}

var (
	nameRE    = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)
	versionRE = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.+_-]{0,62}[A-Za-z0-9])?$`)
)

// CheckName returns an Invalid error unless s can name what: 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending
// with a letter or digit.
func CheckName(what, s string) error {
	if !nameRE.MatchString(s) {
		return &Error{
			Kind: Invalid, Msg: what + " name " + quote(s) + " is not valid",
			Hint: "use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit",
		}
	}
	return nil
}

// CheckVersion returns an Invalid error unless s can be a plugin version.
func CheckVersion(s string) error {
	if !versionRE.MatchString(s) {
		return &Error{
			Kind: Invalid, Msg: "version " + quote(s) + " is not valid",
			Hint: "use 1 to 64 letters, digits, '.', '+', '_' and '-', such as 1.2.0",
		}
	}
	return nil
}
