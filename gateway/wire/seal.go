package wire

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// sealed begins what Seal makes. No provider's own opaque data begins so.
const sealed = "skep1."

type seal struct {
	Origin
	Opaque   string `json:"opaque"`
	Redacted bool   `json:"redacted,omitempty"`
	Call     string `json:"call,omitempty"`
}

// Seal packs t into one string, its origin included. A codec gives it to clients where the protocol has a field for opaque data (a signature,
// encrypted content, a list of reasoning details), and reads it back with Unseal, so that opaque data of any provider goes through a client of any
// protocol and back to where it came from, and nowhere else.
func Seal(t *Thinking) string { return SealCall(t, "") }

// SealCall is Seal for opaque data that sits on a call, for protocols that have no place for it there: the call is named by its id.
func SealCall(t *Thinking, call string) string {
	b, err := json.Marshal(seal{t.Origin, t.Opaque, t.Redacted, call})
	if err != nil { // strings alone are in it
		return ""
	}
	return sealed + base64.RawURLEncoding.EncodeToString(b)
}

// Unseal reads what Seal made. ok is false for anything else, which is then a provider's own, as it is.
func Unseal(s string) (t *Thinking, ok bool) {
	t, _, ok = UnsealCall(s)
	return t, ok
}

// UnsealCall reads what Seal or SealCall made. call is empty with the former.
func UnsealCall(s string) (t *Thinking, call string, ok bool) {
	rest, ok := strings.CutPrefix(s, sealed)
	if !ok {
		return nil, "", false
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return nil, "", false
	}
	var x seal
	if json.Unmarshal(b, &x) != nil {
		return nil, "", false
	}
	return &Thinking{Opaque: x.Opaque, Redacted: x.Redacted, Origin: x.Origin}, x.Call, true
}

// Fits reports whether opaque data of o may be sent to to. What is not known on either side fits, but for the protocol: without one nothing is sent.
func (o Origin) Fits(to Origin) bool {
	same := func(a, b string) bool { return a == "" || b == "" || a == b }
	return o.Protocol != "" && o.Protocol == to.Protocol && same(o.Provider, to.Provider) && same(o.Model, to.Model) && same(o.Secret, to.Secret)
}
