package mcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skep-dev/skep/agent"
)

// seal keeps what clients carry between the rounds of a call (MCP 2026-07-28, requestState): AES-256-GCM, so that they can neither read nor
// change it. The text is base64url without padding of the nonce and what is sealed.
type seal struct{ aead cipher.AEAD }

// carried is what a state says. It is good for one caller, one door and one call with the same arguments.
type carried struct {
	Who   agent.TokenID `json:"w"`
	Door  string        `json:"d"`
	What  string        `json:"m"` // method and name
	Args  [32]byte      `json:"a"`
	Until time.Time     `json:"u"`

	Run   agent.RunID     `json:"r,omitempty"` // that goes on
	State json.RawMessage `json:"s,omitempty"` // of the function that asks
	Round int             `json:"n,omitempty"`
}

// carryTime is how long a client may take to come back.
const carryTime = 24 * time.Hour

func newSeal(key []byte) *seal {
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key)
	}
	sum := sha256.Sum256(append([]byte("skep mcp requestState\x00"), key...))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		panic(err) // unreachable: the key has 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // unreachable: AES has blocks of 16 bytes
	}
	return &seal{aead}
}

func (s *seal) close(c carried) string {
	c.Until = time.Now().Add(carryTime)
	nonce := make([]byte, s.aead.NonceSize())
	rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, encode(c), nil))
}

// maxCarried is the most of a state that is read.
const maxCarried = 256 << 10

// open returns what text carries. It must be of the same caller, door and call as want; anything else is an invalid-params error.
func (s *seal) open(text string, want carried) (c carried, err error) {
	bad := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState is not one that this server gave for this call, or is over: make the call again without it"}
	if len(text) > maxCarried {
		return c, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < s.aead.NonceSize() {
		return c, bad
	}
	plain, err := s.aead.Open(nil, b[:s.aead.NonceSize()], b[s.aead.NonceSize():], nil)
	if err != nil || json.Unmarshal(plain, &c) != nil {
		return c, bad
	}
	if c.Who != want.Who || c.Door != want.Door || c.What != want.What || c.Args != want.Args || time.Now().After(c.Until) {
		return carried{}, bad
	}
	return c, nil
}
