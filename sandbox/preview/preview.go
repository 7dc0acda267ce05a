// Package preview makes links by which a browser sees what listens at a port of a sandbox. A link's text is a capability: it names the sandbox and the port under
// an HMAC-SHA256 (RFC 2104) of a key that never leaves the server, and is worth nothing once its time is up.
package preview

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Path is what the paths of links begin with. What follows is a capability, which no log has.
const Path = "/preview/"

// How long links last.
const (
	Default = time.Hour
	Max     = 24 * time.Hour
)

// purpose sees to it that no other use of the key makes the same code.
const purpose = "skep sandbox preview\x00"

// Links makes links, and opens them.
type Links struct {
	Key []byte
	URL string           // at which the server is reached, such as https://example.com; "" when that is not known
	Now func() time.Time // nil means time.Now
}

// Port is one of a sandbox, to which a link leads.
type Port struct {
	App     agent.App
	Sandbox agent.SandboxID
	Number  int
}

// PortLink is one. Whoever has it can use it.
type PortLink struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"` // whole seconds
}

// CheckPort returns an error for what is no number of a port.
func CheckPort(port int) error {
	if port < 1 || port > 65535 {
		return agent.Errorf(agent.Invalid, "%d is no port: a port is a number from 1 to 65535", port)
	}
	return nil
}

// Make returns a link to a port. It lasts as long as it is told to, an hour for 0 and at most a day.
func (l *Links) Make(p Port, lasts time.Duration) (PortLink, error) {
	if err := CheckPort(p.Number); err != nil {
		return PortLink{}, err
	}
	if lasts == 0 {
		lasts = Default
	}
	if lasts < time.Second || lasts > Max {
		return PortLink{}, agent.Errorf(agent.Invalid, "a link lasts from 1s to %s, not %s", Max, lasts)
	}
	if l.URL == "" {
		return PortLink{}, &agent.Error{
			Kind: agent.Invalid, Msg: "no link can be made: the server listens at all addresses of its machine, and was not told by which of them it is reached",
			Hint: "start it with skep serve --public-url https://HOST",
		}
	}
	expires := l.now().Add(lasts).UTC().Truncate(time.Second)
	b := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	b = binary.BigEndian.AppendUint16(b, uint16(p.Number))
	b = append(b, string(p.App)+"\x00"+string(p.Sandbox)...)
	token := base64.RawURLEncoding.EncodeToString(append(l.sum(b), b...))
	return PortLink{URL: strings.TrimRight(l.URL, "/") + Path + token + "/", Expires: expires}, nil
}

// Open returns to what a link leads, by its token: what follows Path, up to the next slash.
func (l *Links) Open(token string) (Port, error) {
	const fixed = sha256.Size + 8 + 2
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < fixed || !hmac.Equal(b[:sha256.Size], l.sum(b[sha256.Size:])) {
		return Port{}, agent.Errorf(agent.Denied, "this is no link of this server")
	}
	b = b[sha256.Size:]
	if expires := time.Unix(int64(binary.BigEndian.Uint64(b)), 0); !l.now().Before(expires) {
		return Port{}, &agent.Error{Kind: agent.Denied, Msg: "the link was good until " + expires.UTC().Format(time.RFC3339), Hint: "make a new one: skep sandbox preview"}
	}
	app, id, _ := strings.Cut(string(b[10:]), "\x00")
	return Port{App: agent.App(app), Sandbox: agent.SandboxID(id), Number: int(binary.BigEndian.Uint16(b[8:]))}, nil
}

func (l *Links) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

func (l *Links) sum(b []byte) []byte {
	h := hmac.New(sha256.New, l.Key)
	h.Write([]byte(purpose))
	h.Write(b)
	return h.Sum(nil)
}
