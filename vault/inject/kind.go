package inject

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

// open makes of a secret what goes into a request.
func (i *Injector) open(ctx context.Context, use Use, o *opened) error {
	switch o.Secret.Kind {
	case agent.SecretValue:
		o.text = string(o.Value)
		o.cleaner = i.cleaners.of(use.App, o, o.Value)
		return nil
	case agent.SecretBasic:
		return i.openBasic(use.App, o)
	case agent.SecretAWS:
		return i.openAWS(use.App, o)
	case agent.SecretGitHub:
		return i.openGitHub(ctx, use, o)
	case agent.SecretOAuth:
		return i.openOAuth(ctx, use, o)
	}
	return agent.Errorf(agent.Internal, "a secret of kind %s", o.Secret.Kind)
}

// decode reads the fields of a typed secret. No error of it holds what was read.
func decode(o *opened, fields any) error {
	if json.Unmarshal(o.Value, fields) != nil {
		return o.broken("is not the JSON that its kind asks for")
	}
	return nil
}

// broken is the error for a value that its kind cannot be made of.
func (o *opened) broken(why string) error {
	return invalid("the value of the secret "+quote(o.Secret.Name)+", of kind "+o.Secret.Kind.String()+", "+why, "set it again: skep secret set "+o.Secret.Name)
}

// openBasic makes the credentials of RFC 7617.
func (i *Injector) openBasic(app agent.App, o *opened) error {
	var f struct{ Username, Password string }
	if err := decode(o, &f); err != nil {
		return err
	}
	both := f.Username + ":" + f.Password
	switch {
	case strings.Contains(f.Username, ":"):
		return o.broken(`has a username with ":" in it`)
	case strings.ContainsFunc(both, isControl):
		return o.broken("has a control character")
	}
	o.scheme, o.text = "Basic", base64.StdEncoding.EncodeToString([]byte(both))
	o.cleaner = i.cleaners.of(app, o, []byte(f.Password), []byte(both), []byte(o.text))
	return nil
}

// maxCleaners is how many Scrubbers are kept.
const maxCleaners = 1024

// cleaners keeps the Scrubber of each secret's current value, since to make one takes longer than to sign with a token.
type cleaners struct {
	mu   sync.Mutex
	kept map[tokenKey]cleaner
}

type cleaner struct {
	of []byte // the secret's value
	s  *scrub.Scrubber
}

// of returns a Scrubber of what can be seen of the secret where it goes.
func (c *cleaners) of(app agent.App, o *opened, values ...[]byte) *scrub.Scrubber {
	key := tokenKey{app, o.Secret.Name}
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, ok := c.kept[key]; ok && bytes.Equal(kept.of, o.Value) {
		return kept.s
	}
	if c.kept == nil || len(c.kept) >= maxCleaners {
		c.kept = map[tokenKey]cleaner{}
	}
	s := scrub.New(values...)
	c.kept[key] = cleaner{bytes.Clone(o.Value), s}
	return s
}
