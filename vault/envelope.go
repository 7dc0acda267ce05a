package vault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/vault/kek"
)

// A sealed value is an envelope in Tink's wire format: four bytes of length, the value's own key as the vault's key encrypted
// it, and the value as its own key (AES-256-GCM) encrypted it (https://developers.google.com/tink/wire-format#envelope_encryption).

// place is what a sealed value is bound to. No part of it contains a zero byte.
func place(app agent.App, name string, v agent.SecretVersion) []byte {
	b := []byte("skep secret 1\x00" + string(app) + "\x00" + name + "\x00" + v.Kind.String() + "\x00")
	return binary.BigEndian.AppendUint64(b, uint64(v.Version))
}

func envelope(key *kek.Key) (*aead.KMSEnvelopeAEADWithContext, error) {
	return aead.NewKMSEnvelopeAEADWithContext(aead.AES256GCMKeyTemplate(), key)
}

func sealValue(ctx context.Context, key *kek.Key, place, value []byte) ([]byte, error) {
	e, err := envelope(key)
	if err != nil {
		return nil, err
	}
	return e.EncryptWithContext(ctx, value, place)
}

func openValue(ctx context.Context, key *kek.Key, place, sealed []byte) ([]byte, error) {
	e, err := envelope(key)
	if err != nil {
		return nil, err
	}
	return e.DecryptWithContext(ctx, sealed, place)
}

// rewrapValue puts the value's own key under another key. The value stays encrypted.
func rewrapValue(ctx context.Context, from, to *kek.Key, sealed []byte) ([]byte, error) {
	if len(sealed) < 4 {
		return nil, errors.New("the envelope is too short")
	}
	n, rest := binary.BigEndian.Uint32(sealed), sealed[4:]
	if n == 0 || uint64(n) > uint64(len(rest)) {
		return nil, errors.New("the envelope is too short")
	}
	own, err := from.DecryptWithContext(ctx, rest[:n], nil)
	if err != nil {
		return nil, err
	}
	defer clear(own)
	wrapped, err := to.EncryptWithContext(ctx, own, nil)
	if err != nil {
		return nil, err
	}
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(wrapped)+len(rest)-int(n)), uint32(len(wrapped)))
	return append(append(out, wrapped...), rest[n:]...), nil
}

// The seal of a secret is a digest of what decides where its value may go, encrypted with the vault's key. Who can write to the
// store and has no key can undo a change, with all that it changed, and nothing else.

const sealPrefix = "skep seal 1\x00"

func digest(s agent.Secret) ([]byte, error) {
	s.Created, s.Updated = time.Time{}, time.Time{}
	b, err := json.Marshal(s)
	sum := sha256.Sum256(b)
	return append([]byte(sealPrefix), sum[:]...), err
}

// sealed returns s under a new seal.
func sealed(ctx context.Context, key *kek.Key, s store.Secret) (store.Secret, error) {
	d, err := digest(infoOf(s).Secret)
	if err != nil {
		return s, err
	}
	data, err := key.EncryptWithContext(ctx, d, nil)
	s.Seal = store.SecretSeal{Key: key.ID, Data: data}
	return s, err
}

// errGone says that a key was left by a re-wrap meanwhile.
var errGone = errors.New("the key is not open")

// checkSeal returns an error when s is not as the vault stored it.
func (v *Vault) checkSeal(ctx context.Context, s store.Secret) error {
	key := v.key(s.Seal.Key)
	if key == nil {
		return errGone
	}
	want, err := digest(infoOf(s).Secret)
	if err != nil {
		return err
	}
	got, err := key.DecryptWithContext(ctx, s.Seal.Data, nil)
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the seal is of something else")
	}
	return refusal(s.Name, err)
}

// refusal is the error for a secret that cannot be opened for the cause err.
func refusal(name string, err error) error {
	if _, ok := errors.AsType[*agent.Error](err); ok || err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &agent.Error{
		Kind: agent.Internal, Msg: "secret " + name + " is not as the vault stored it", Err: err,
		Hint: "somebody changed the data directory: find out who, then delete the secret and set it again",
	}
}
