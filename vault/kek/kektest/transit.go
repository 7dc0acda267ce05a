// Package kektest serves the protocols of key management services with real keys, for tests.
package kektest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Transit is the key "skep" of a transit engine mounted at sub/transit, which can be rotated.
type Transit struct {
	Token, Namespace string // set before it serves

	mu       sync.Mutex
	status   int
	redirect string
	versions []cipher.AEAD
	away     []cipher.AEAD
	seen     int
}

// NewTransit returns an engine whose key has one version.
func NewTransit(token string) *Transit {
	e := &Transit{Token: token}
	e.Rotate()
	return e
}

// Rotate makes a new version, which encrypts from now on.
func (e *Transit) Rotate() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.versions = append(e.versions, newGCM())
}

// SetStatus makes it answer with a status in place of serving, until that is 0.
func (e *Transit) SetStatus(status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status = status
}

// SetRedirect makes it send requests on to another server.
func (e *Transit) SetRedirect(to string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.redirect = to
}

// Replace puts another key in the place of its own, as a deletion and a new key of that name do. Restore undoes it.
func (e *Transit) Replace() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away, e.versions = e.versions, []cipher.AEAD{newGCM()}
}

// Restore brings back the key that Replace put away.
func (e *Transit) Restore() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.versions = e.away
}

// Seen returns how many requests have come.
func (e *Transit) Seen() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

func newGCM() cipher.AEAD {
	key := make([]byte, 32)
	rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return gcm
}

func (e *Transit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen++
	fail := func(status int, text string) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"errors": []string{text}})
	}
	var in struct{ Plaintext, Ciphertext string }
	switch {
	case e.redirect != "":
		http.Redirect(w, r, e.redirect, http.StatusTemporaryRedirect)
		return
	case e.status != 0:
		fail(e.status, "as told")
		return
	case r.Header.Get("X-Vault-Token") != e.Token || r.Header.Get("X-Vault-Namespace") != e.Namespace:
		fail(403, "permission denied")
		return
	case r.Method != "POST" || r.Header.Get("X-Vault-Request") != "true" || json.NewDecoder(r.Body).Decode(&in) != nil:
		fail(400, "bad request")
		return
	}
	data := map[string]string{}
	switch r.URL.Path {
	case "/v1/sub/transit/encrypt/skep":
		text, err := base64.StdEncoding.DecodeString(in.Plaintext)
		if err != nil {
			fail(400, "failed to base64-decode plaintext")
			return
		}
		n := len(e.versions)
		data["ciphertext"] = fmt.Sprintf("vault:v%d:%s", n, base64.StdEncoding.EncodeToString(e.versions[n-1].Seal(nil, nil, text, nil)))
	case "/v1/sub/transit/decrypt/skep":
		var n int
		rest, _ := strings.CutPrefix(in.Ciphertext, "vault:v")
		if _, err := fmt.Sscanf(rest, "%d:", &n); err != nil || n < 1 || n > len(e.versions) {
			fail(400, "invalid ciphertext: no prefix")
			return
		}
		_, b64, _ := strings.Cut(rest, ":")
		b, err := base64.StdEncoding.DecodeString(b64)
		if err == nil {
			b, err = e.versions[n-1].Open(nil, nil, b, nil)
		}
		if err != nil {
			fail(400, "invalid ciphertext: unable to decrypt")
			return
		}
		data["plaintext"] = base64.StdEncoding.EncodeToString(b)
	default:
		fail(404, "no handler for route")
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"data": data})
}
