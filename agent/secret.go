package agent

import (
	"strings"
	"time"
)

// Secret is a secret as it is listed. Nothing returns its value.
type Secret struct {
	App         App        `json:"app"`
	Name        string     `json:"name"`
	Kind        SecretKind `json:"kind"`
	Description string     `json:"description,omitempty"`
	Bindings    []Binding  `json:"bindings"` // where it may go; nowhere when there are none
	Version     int        `json:"version"`  // the current one, counting from 1
	Created     time.Time  `json:"created"`
	Updated     time.Time  `json:"updated"` // when its value or a binding last changed
}

// SecretVersion tells of one value that a secret has or had.
type SecretVersion struct {
	Version int        `json:"version"`
	Kind    SecretKind `json:"kind"`
	Created time.Time  `json:"created"`
	Key     string     `json:"key"` // fingerprint of the vault's key that it is under
}

// SecretKind says what a secret's value is, and so how it goes into a request.
type SecretKind uint8

const (
	UnknownSecret SecretKind = iota
	SecretValue              // any text: goes where a placeholder stands
	SecretBasic              // {"username", "password"}: HTTP basic authentication (RFC 7617)
	SecretAWS                // {"access_key_id", "secret_access_key", "session_token"?, "region"?, "service"?}: signs with AWS SigV4
	SecretGitHub             // {"app_id", "installation_id", "private_key", "api_url"?}: an installation token of a GitHub App
	SecretOAuth              // {"token_url", "client_id", "client_secret", "scope"?, "audience"?}: client credentials (RFC 6749, section 4.4)
)

var secretNames = [...]string{"unknown", "value", "basic", "aws", "github_app", "oauth"}

func (k SecretKind) String() string               { return nameOf(secretNames[:], k) }
func (k SecretKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *SecretKind) UnmarshalText(b []byte) error {
	return parseName(secretNames[:], b, k, "secret kind")
}

// Binding is where a secret may go: the places In of the requests To. Its text form is the target, then the places:
//
//	https://api.example.com/v1/** header:authorization query:key
type Binding struct {
	To Target
	In []Place // sorted; never empty
}

// PlaceKind is a part of a request.
type PlaceKind uint8

const (
	UnknownPlace PlaceKind = iota
	PlaceHeader            // header:NAME, in lower case
	PlaceQuery             // query:NAME
	PlaceBody              // body:NAME of a form, or body:/JSON/POINTER (RFC 6901)
)

var placeNames = [...]string{"unknown", "header", "query", "body"}

func (k PlaceKind) String() string               { return nameOf(placeNames[:], k) }
func (k PlaceKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *PlaceKind) UnmarshalText(b []byte) error {
	return parseName(placeNames[:], b, k, "place")
}

// Place is one place in a request where a secret may stand. Its text form is KIND:NAME.
type Place struct {
	Kind PlaceKind
	Name string
}

// PlaceAuthorization is where a secret goes that names no other place.
func PlaceAuthorization() Place { return Place{PlaceHeader, "authorization"} }

func (p Place) String() string               { return p.Kind.String() + ":" + p.Name }
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p *Place) UnmarshalText(b []byte) error {
	kind, name, found := strings.Cut(string(b), ":")
	var k PlaceKind
	if err := k.UnmarshalText([]byte(kind)); !found || err != nil || k == UnknownPlace || name == "" || len(name) > 200 ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return &Error{
			Kind: Invalid, Msg: "place " + quote(string(b)) + " is not valid",
			Hint: "write header:NAME, query:NAME, body:NAME for a form, or body:/POINTER for JSON, such as header:authorization",
		}
	}
	if k == PlaceHeader {
		name = strings.ToLower(name)
		if strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_", r) }) {
			return Errorf(Invalid, "place %s: the header's name is not valid", quote(string(b)))
		}
	}
	*p = Place{k, name}
	return nil
}

func (b Binding) String() string {
	s := b.To.String()
	for _, p := range b.In {
		s += " " + p.String()
	}
	return s
}

func (b Binding) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads the text form. A binding without places is one to the Authorization header.
func (b *Binding) UnmarshalText(text []byte) error {
	words := strings.Fields(string(text))
	target := 1
	if len(words) > 0 && !strings.Contains(words[0], "://") { // methods come first
		target = 2
	}
	if len(words) < target {
		return &Error{
			Kind: Invalid, Msg: "binding " + quote(string(text)) + " has no target",
			Hint: `begin it with https:// or http://, such as "https://api.example.com/v1/** header:authorization"`,
		}
	}
	var out Binding
	var err error
	if out.To, err = ParseTarget(strings.Join(words[:target], " ")); err != nil {
		return err
	}
	for _, w := range words[target:] {
		var p Place
		if err := p.UnmarshalText([]byte(w)); err != nil {
			return err
		}
		out.In = append(out.In, p)
	}
	if len(out.In) == 0 {
		out.In = []Place{PlaceAuthorization()}
	}
	*b = out
	return nil
}

// PlaceExchange stands for a place in a SecretUse by which the secret was exchanged for a token.
const PlaceExchange = "exchange"

// SecretUse is the data of an EventSecretUsed: which secret went where, for whom.
type SecretUse struct {
	Secret  string `json:"secret"`
	Version int    `json:"version"`
	Method  string `json:"method"`
	Host    string `json:"host"`
	Path    string `json:"path"`
	Place   string `json:"place"` // such as "header:authorization", or PlaceExchange
	Agent   string `json:"agent"`
	Run     RunID  `json:"run,omitempty"`
}

// Refusal is the data of an EventRefused: what an agent asked for that it was not granted.
type Refusal struct {
	Agent  string `json:"agent"`
	Run    RunID  `json:"run,omitempty"`
	Grant  string `json:"grant"` // "http", "secret", "agent", "state", "model" or "tool"
	What   string `json:"what"`  // "GET https://example.com/x", or a name
	Reason string `json:"reason"`
	More   int64  `json:"more,omitempty"` // refusals of the app since the last one in this log, which were alike or too many to be written
}
