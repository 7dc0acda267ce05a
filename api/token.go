package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

const (
	tokenPrefix = "skep_"
	tokenDigits = 43 // of base 62, enough for 32 bytes
)

// newSecret returns a fresh token: "skep_" and 32 random bytes in base 62.
func newSecret() string {
	var b [32]byte
	rand.Read(b[:])
	s := new(big.Int).SetBytes(b[:]).Text(62)
	return tokenPrefix + strings.Repeat("0", tokenDigits-len(s)) + s
}

func secretHash(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }

// EnsureOwnerToken makes a token at the first start, stores its hash and writes the secret to the file at path, readable
// by its owner only. An existing file is left as it is, and is made known to a store that has no token at all. To replace
// a lost token, delete the file and start again. created reports whether the file was written.
func EnsureOwnerToken(ctx context.Context, st *store.Store, path string) (created bool, err error) {
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		known, _, err := st.Tokens(ctx, "", agent.Page{Limit: 1})
		if err != nil || len(known) > 0 {
			return false, err
		}
		secret := strings.TrimSpace(string(b))
		if !strings.HasPrefix(secret, tokenPrefix) || len(secret) != len(tokenPrefix)+tokenDigits {
			return false, fmt.Errorf("owner token: %s holds no token; delete it to have a new one made", path)
		}
		return false, putOwner(ctx, st, secret)
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("owner token: %w", err)
	}
	secret := newSecret()
	if err := putOwner(ctx, st, secret); err != nil { // first, so that what the file holds always works
		return false, err
	}
	return true, writePrivate(path, secret+"\n")
}

func putOwner(ctx context.Context, st *store.Store, secret string) error {
	now := time.Now().UTC()
	t := agent.Token{ID: agent.NewTokenID(now), Name: "owner", Created: now}
	if err := st.PutToken(ctx, t, secretHash(secret), store.Once{}); err != nil {
		return fmt.Errorf("owner token: %w", err)
	}
	return nil
}

// writePrivate puts a file readable by its owner only in place, whole or not at all.
func writePrivate(path, text string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // CreateTemp uses mode 0600
	if err != nil {
		return fmt.Errorf("owner token: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("owner token: %w", err)
		}
	}()
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
