// Package kek opens the keys that a vault encrypts the keys of its values with: from a file, by an age identity, or in a key
// management service. One text says which:
//
//	file:PATH                        32 random bytes in base64; made at the first start
//	age:PATH                         a file of age identities; the key is kept in the store, encrypted to the first of them
//	hcvault://HOST[:PORT]/MOUNT/keys/NAME   the transit engine of HashiCorp Vault or OpenBao, by VAULT_TOKEN
//	aws-kms://ARN                    AWS KMS, by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
//	memory                           a key that ends with the process, for a store that does, too
package kek

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/skep-dev/skep/agent"
)

// Key encrypts and decrypts short texts. It implements tink.AEADWithContext, and is safe for concurrent use. Its errors are
// Unavailable when a service did not answer, Denied when it refused, and else mean that the text is not this key's.
type Key struct {
	ID      string // fingerprint: the kind of source, and what tells one key from another; no secret
	Source  string // as it was given
	Wrapped []byte // the key itself as an age identity opens it, to be kept; nil for keys of other sources
	Made    bool   // whether it was in no file before

	aead tink.AEADWithContext
}

// EncryptWithContext encrypts text. Associated data is not supported, for not every service does.
func (k *Key) EncryptWithContext(ctx context.Context, text, _ []byte) ([]byte, error) {
	return k.aead.EncryptWithContext(ctx, text, nil)
}

// DecryptWithContext decrypts what EncryptWithContext made.
func (k *Key) DecryptWithContext(ctx context.Context, sealed, _ []byte) ([]byte, error) {
	return k.aead.DecryptWithContext(ctx, sealed, nil)
}

// Opener opens keys. Its zero value works.
type Opener struct {
	Dir  string              // the data directory, in which no key may be
	Env  func(string) string // nil means os.Getenv
	HTTP *http.Client        // for services; nil means one with a timeout, and the certificates of VAULT_CACERT
	// Hosts are services that the operator named, and so may be sent credentials; the one of VAULT_ADDR may, too.
	Hosts []string
	Now   func() time.Time // for signatures; nil means time.Now
}

func (o *Opener) env(name string) string {
	if o.Env != nil {
		return o.Env(name)
	}
	return os.Getenv(name)
}

// Mode says what Open does where there is no key.
type Mode uint8

const (
	Find Mode = iota // the key must be there
	Make             // a key of a file or of an age identity is made where there is none
)

// Open opens the key that source names. wrapped are those that the store keeps; an age identity opens one of them, or is
// given a new one.
func (o *Opener) Open(ctx context.Context, source string, wrapped [][]byte, mode Mode) (*Key, error) {
	scheme, rest, found := strings.Cut(source, ":")
	switch {
	case source == "memory":
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // never fails
		return local("memory", source, key)
	case !found || rest == "":
	case scheme == "file":
		return o.openFile(source, rest, mode)
	case scheme == "age":
		return o.openAge(source, rest, wrapped, mode)
	case scheme == "hcvault":
		return o.openTransit(source)
	case scheme == "aws-kms":
		return o.openAWS(source)
	}
	return nil, &agent.Error{
		Kind: agent.Invalid, Msg: "vault key: there is no such kind of key: " + cut(source),
		Hint: "write file:PATH, age:PATH of an identity file, hcvault://HOST/transit/keys/NAME or aws-kms://ARN",
	}
}

// Host returns the service that source names, or "".
func Host(source string) string {
	t, err := parseTransit(source)
	if err != nil {
		return ""
	}
	return t.host
}

// cut bounds what a message repeats of a source.
func cut(source string) string {
	if len(source) > 200 {
		return source[:200] + "..."
	}
	return source
}

// local is a key that is in memory.
func local(kind, source string, key []byte) (*Key, error) {
	aead, err := subtle.NewXChaCha20Poly1305(key)
	if err != nil {
		return nil, agent.Wrap(agent.Internal, err, "vault key: cannot be used")
	}
	return &Key{ID: fingerprint(kind, key), Source: source, aead: inMemory{aead}}, nil
}

// fingerprint names a key. Nobody can guess back 32 random bytes.
func fingerprint(kind string, key []byte) string {
	sum := sha256.Sum256(append([]byte("skep vault key\x00"+kind+"\x00"), key...))
	return kind + "-" + hex.EncodeToString(sum[:8])
}

// inMemory gives a Tink primitive the contexts that it has no use for.
type inMemory struct{ tink.AEAD }

func (a inMemory) EncryptWithContext(_ context.Context, text, ad []byte) ([]byte, error) {
	return a.Encrypt(text, ad)
}

func (a inMemory) DecryptWithContext(_ context.Context, sealed, ad []byte) ([]byte, error) {
	return a.Decrypt(sealed, ad)
}
