package kek

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"

	"filippo.io/age"

	"github.com/skep-dev/skep/agent"
)

// openAge opens the key that was encrypted to an identity of the file at path (age-encryption.org/v1).
func (o *Opener) openAge(source, path string, wrapped [][]byte, mode Mode) (*Key, error) {
	b, err := o.readFile(path)
	if err != nil {
		e := agent.AsError(unreadable(path, err))
		if e.Kind == agent.NotFound {
			e.Hint = "put it back from where it was kept, or make a new one with age-keygen -o " + path
		}
		return nil, e
	}
	ids, err := age.ParseIdentities(bytes.NewReader(b))
	clear(b)
	if err != nil { // its text may hold a line of the file
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "vault key: " + path + " does not hold age identities",
			Hint: "make one with age-keygen -o FILE; identities behind a passphrase and SSH keys are not supported",
		}
	}
	for _, w := range wrapped {
		key, err := unwrap(w, ids)
		if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
			continue
		}
		if err != nil {
			return nil, agent.Wrap(agent.Internal, err, "vault key: what the store keeps for "+path+" is damaged")
		}
		return ageKey(source, key, w)
	}
	if mode != Make {
		return nil, &agent.Error{
			Kind: agent.NotFound, Msg: "vault key: no key in this store was encrypted to an identity in " + path,
			Hint: "name the identity file that was used before with --vault-key age:/PATH",
		}
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	w, err := wrap(key, ids[0])
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "vault key: nothing can be encrypted to the first identity in "+path)
	}
	return ageKey(source, key, w)
}

func ageKey(source string, key, wrapped []byte) (*Key, error) {
	defer clear(key)
	k, err := local("age", source, key)
	if err == nil {
		k.Wrapped = wrapped
	}
	return k, err
}

func unwrap(wrapped []byte, ids []age.Identity) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(wrapped), ids...)
	if err != nil {
		return nil, err
	}
	key := make([]byte, keySize)
	if _, err := io.ReadFull(r, key); err != nil {
		return nil, err
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return nil, errors.New("it is longer than a key")
	}
	return key, nil
}

func wrap(key []byte, id age.Identity) ([]byte, error) {
	var to age.Recipient
	switch id := id.(type) {
	case *age.X25519Identity:
		to = id.Recipient()
	case *age.HybridIdentity:
		to = id.Recipient()
	default:
		return nil, errors.New("it is of a kind without a recipient")
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(key)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
