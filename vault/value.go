package vault

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// The bounds of a value, and of each member of a typed one that is a secret. What is shorter would be found by chance in what
// comes back, and could not be taken out of it.
const (
	MinValue = 6
	MaxValue = 64 << 10
)

// member is one member of a typed value. All are strings.
type member struct {
	name     string
	optional bool
	secret   bool               // at least MinValue bytes
	check    func(string) error // nil allows any text without control characters
}

// membersOf lists what agent.SecretKind says of a kind.
func membersOf(kind agent.SecretKind) []member {
	switch kind {
	case agent.SecretBasic:
		return []member{{name: "username", check: userName}, {name: "password", secret: true}}
	case agent.SecretAWS:
		return []member{
			{name: "access_key_id", secret: true, check: word}, {name: "secret_access_key", secret: true, check: word},
			{name: "session_token", optional: true, secret: true, check: word},
			{name: "region", optional: true, check: word}, {name: "service", optional: true, check: word},
		}
	case agent.SecretGitHub:
		return []member{
			{name: "app_id", check: word}, {name: "installation_id", check: word}, {name: "private_key", secret: true, check: rsaKey},
			{name: "api_url", optional: true, check: webURL},
		}
	case agent.SecretOAuth:
		return []member{
			{name: "token_url", check: webURL}, {name: "client_id"}, {name: "client_secret", secret: true},
			{name: "scope", optional: true}, {name: "audience", optional: true},
		}
	}
	return nil
}

// CheckValue returns a value as it is kept: as it is, or the JSON object of a typed one with its members in order. Its errors
// never hold any of it.
func CheckValue(kind agent.SecretKind, value []byte) ([]byte, error) {
	switch {
	case kind < agent.SecretValue || kind > agent.SecretOAuth:
		return nil, agent.Errorf(agent.Invalid, "there is no such kind of secret")
	case len(value) == 0:
		return nil, agent.Errorf(agent.Invalid, "the value is empty")
	case len(value) > MaxValue:
		return nil, agent.Errorf(agent.Invalid, "the value has %d bytes, more than %d", len(value), MaxValue)
	case kind == agent.SecretValue:
		if err := tooShort("the value", len(value)); err != nil {
			return nil, err
		}
		return bytes.Clone(value), nil
	}
	got, err := decodeMembers(kind, value)
	if err != nil {
		return nil, err
	}
	return encodeMembers(kind, got)
}

func tooShort(what string, n int) error {
	if n >= MinValue {
		return nil
	}
	return &agent.Error{
		Kind: agent.Invalid, Msg: fmt.Sprintf("%s has %d bytes, fewer than %d", what, n, MinValue),
		Hint: "so short a text stands in answers by chance, and could not be kept out of them; use a longer secret",
	}
}

// decodeMembers reads an object whose members are strings, or whole numbers, by their names.
func decodeMembers(kind agent.SecretKind, value []byte) (map[string]string, error) {
	bad := func(format string, args ...any) (map[string]string, error) {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "the value is not a secret of kind " + kind.String() + ": " + fmt.Sprintf(format, args...),
			Hint: "it is a JSON object with " + words(membersOf(kind)),
		}
	}
	if !utf8.Valid(value) {
		return bad("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return bad("it is not a JSON object")
	}
	members, got := membersOf(kind), map[string]string{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return bad("it is not valid JSON at byte %d", d.InputOffset())
		}
		i := slices.IndexFunc(members, func(m member) bool { return m.name == name })
		if i < 0 {
			return bad("it has a member that is not one of them")
		}
		if _, twice := got[name]; twice {
			return bad("it has %s twice", name)
		}
		switch t, err = d.Token(); t := t.(type) {
		case string:
			got[name] = t
		case json.Number:
			if strings.ContainsAny(t.String(), ".eE-") {
				return bad("%s is not a string", name)
			}
			got[name] = t.String()
		default:
			if err != nil {
				return bad("it is not valid JSON at byte %d", d.InputOffset())
			}
			return bad("%s is not a string", name)
		}
	}
	if _, err := d.Token(); err != nil {
		return bad("it is not valid JSON at byte %d", d.InputOffset())
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("there is something after its JSON object")
	}
	for _, m := range members {
		s := got[m.name]
		if s == "" {
			if _, there := got[m.name]; there || !m.optional {
				return bad("%s is missing or empty", m.name)
			}
			continue
		}
		check := m.check
		if check == nil {
			check = line
		}
		if err := check(s); err != nil {
			return bad("%s %v", m.name, err)
		}
		if m.secret {
			if err := tooShort(m.name, len(s)); err != nil {
				return nil, err
			}
		}
	}
	return got, nil
}

func words(ms []member) string {
	var out []string
	for _, m := range ms {
		w := m.name
		if m.optional {
			w += " (may be left out)"
		}
		out = append(out, w)
	}
	return strings.Join(out, ", ")
}

func encodeMembers(kind agent.SecretKind, got map[string]string) ([]byte, error) {
	var b bytes.Buffer
	sep := byte('{')
	for _, m := range membersOf(kind) {
		s, ok := got[m.name]
		if !ok {
			continue
		}
		text, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		b.WriteByte(sep)
		sep = ','
		fmt.Fprintf(&b, "%q:%s", m.name, text)
		clear(text)
	}
	b.WriteByte('}')
	if b.Len() > MaxValue {
		return nil, agent.Errorf(agent.Invalid, "the value has more than %d bytes", MaxValue)
	}
	return b.Bytes(), nil
}

func line(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("has a control character")
	}
	return nil
}

func word(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("has a space, or a character that is not ASCII")
	}
	return nil
}

// userName is what RFC 7617 allows.
func userName(s string) error {
	if strings.Contains(s, ":") {
		return errors.New("has a colon, which basic authentication cannot carry")
	}
	return line(s)
}

func webURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("is not the address of a web service, such as https://auth.example.com/token")
	}
	return word(s)
}

// rsaKey wants what GitHub gives out: an RSA key in PEM, as PKCS #1 or PKCS #8.
func rsaKey(s string) error {
	block, _ := pem.Decode([]byte(s))
	if block == nil {
		return errors.New("is not in PEM, which begins with -----BEGIN RSA PRIVATE KEY-----")
	}
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return nil
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if _, ok := key.(*rsa.PrivateKey); ok {
			return nil
		}
	}
	return errors.New("is not an RSA private key")
}
