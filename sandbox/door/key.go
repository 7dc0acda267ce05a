package door

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strconv"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
)

// keyPrefix is what model keys of boxes begin with, so that one that leaked is known for what it is.
const keyPrefix = "skb_"

// ModelKey is the key by which a run asks for models in one generation of a box. Nobody can tell it who has not secret, which is random and of one server;
// and a server that was started again has the same, so that what runs in the box goes on. It is good at the socket of that box alone.
func ModelKey(secret []byte, sb *agent.Sandbox) (string, error) {
	b, err := hkdf.Key(sha256.New, secret, nil, "model key "+string(sb.ID)+" "+strconv.FormatInt(sb.Generation, 10)+" "+string(sb.Run), 32)
	if err != nil {
		return "", agent.Wrap(agent.Internal, err, "the model key of a sandbox cannot be made")
	}
	return keyPrefix + hex.EncodeToString(b), nil
}

// admit lets in who has the key.
func (d *Door) admit(ctx context.Context, key string) (gateway.Caller, error) {
	// Of hashes, so that not even the length is told by how long it takes.
	want, got := sha256.Sum256([]byte(d.o.Key)), sha256.Sum256([]byte(key))
	if d.o.Key == "" || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return gateway.Caller{}, &agent.Error{
			Kind: agent.Unauthenticated, Msg: "this is not the model key of this sandbox", Hint: "what is started in the sandbox finds the key in its environment",
		}
	}
	who, err := d.o.Caller(ctx)
	if err == nil && who.Models == nil {
		who.Models = []string{}
	}
	return who, err
}
