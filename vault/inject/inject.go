// Package inject puts secrets into HTTP requests at the last step before they leave, and asks nobody's trust for it: a guest
// writes the placeholder {{secret:NAME}}, and what that becomes is decided here by where the request really goes.
//
// A placeholder may stand in a header's value, a query value, a field of a form or a string of JSON. It is replaced only if the
// secret is bound to this target and this place, the agent's grant allows it, and the use was written down. A placeholder
// anywhere else refuses the request; it is never sent as text. A value that holds a placeholder is not looked at again.
//
// For a redirect, the caller signs again: it makes the next request with the placeholders that the guest wrote (headers, and the
// body when it is sent again), and nothing of what was put in goes with it.
package inject

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault"
	"github.com/skep-dev/skep/vault/scrub"
)

// Source gives out secrets; a *vault.Vault is one. Its error is NotFound when there is no such secret.
type Source interface {
	Material(ctx context.Context, app agent.App, name string) (vault.Material, error)
}

// Doer makes the requests that exchange a secret for a token. It follows no redirects, and what it may reach is its own
// business: where those go is said by who set the secret, not by a guest.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Options of an Injector.
type Options struct {
	Exchange Doer // nil means that secrets that are exchanged for tokens cannot be used
}

// Use is for whom secrets are put into a request.
type Use struct {
	App   agent.App
	Agent string
	Run   agent.RunID
	Allow func(ctx context.Context, name string) error         // whether the agent's grants allow the secret here; counts one use
	Audit func(ctx context.Context, use agent.SecretUse) error // writes a use down, durably, before the secret leaves
}

// Injector puts secrets into requests. It keeps tokens that secrets were exchanged for until they expire. It is safe for
// concurrent use.
type Injector struct {
	source   Source
	exchange Doer
	tokens   tokens
	cleaners cleaners
	near     *scrub.Scrubber // finds what looks like a placeholder, in any encoding
}

// New returns an Injector of the secrets of source, of which there are none when that is nil.
func New(source Source, o *Options) *Injector {
	i := &Injector{
		source: source,
		near:   scrub.New([]byte(opening), []byte("{{ secret:"), []byte("{{Secret:"), []byte("{{SECRET:")),
	}
	if o != nil {
		i.exchange = o.Exchange
	}
	return i
}

// Sign replaces the placeholders in r, which goes to target. It returns a Scrubber of all that it put in, for what comes back;
// nil when there was no placeholder. It reads a body of known length up to 1 MiB, and puts one in its place. A longer body, or
// one of unknown length, fails with an Invalid error where a placeholder turns up in it. After an error r must not be sent;
// its body is still the caller's to close.
//
// Errors are Invalid where no secret can ever stand, Denied where this one may not, Exhausted or Unavailable as Allow, Audit
// or an exchange say. None holds anything of a value.
func (i *Injector) Sign(ctx context.Context, use Use, r *http.Request, target agent.Request) (*scrub.Scrubber, error) {
	f := finder{near: i.near, r: r, headers: map[string]int{}}
	if err := f.find(); err != nil || len(f.slots) == 0 {
		return nil, err
	}
	if err := sameTarget(r, target); err != nil {
		return nil, err
	}
	secrets, err := i.secrets(ctx, use, f.slots, target)
	if err != nil {
		return nil, err
	}
	if err := audit(ctx, use, f.slots, secrets, target); err != nil {
		return nil, err
	}
	all := make([]*scrub.Scrubber, 0, len(secrets))
	var signer *awsKey
	for _, s := range secrets {
		if err := i.open(ctx, use, s); err != nil {
			return nil, err
		}
		if s.aws != nil {
			signer = s.aws
		}
		all = append(all, s.cleaner)
	}
	for _, s := range f.slots {
		if err := s.fill(secrets); err != nil {
			return nil, err
		}
	}
	f.write()
	if signer != nil {
		if err := signer.sign(r); err != nil {
			return nil, err
		}
	}
	return scrub.Merge(all...), nil
}

// Rejected says that a target answered 401 to a request that the secret was put into (Use.Audit said so). A token that it was
// exchanged for is dropped, so that the next use gets a new one.
func (i *Injector) Rejected(app agent.App, name string) { i.tokens.drop(tokenKey{app, name}) }

// opened is a secret while one request is signed.
type opened struct {
	vault.Material
	text    string // what replaces a placeholder; empty for aws
	scheme  string // of the Authorization header, when the placeholder stands there alone
	aws     *awsKey
	cleaner *scrub.Scrubber
}

// secrets gets each secret that is named, once, and checks that it may go to each place where it is.
func (i *Injector) secrets(ctx context.Context, use Use, slots []*slot, target agent.Request) (map[string]*opened, error) {
	out := map[string]*opened{}
	for _, s := range slots {
		for _, name := range s.names() {
			o := out[name]
			if o == nil {
				if err := use.Allow(ctx, name); err != nil {
					return nil, err
				}
				m, err := i.material(ctx, use.App, name)
				if err != nil && agent.KindOf(err) == agent.NotFound {
					return nil, &agent.Error{
						Kind: agent.Denied, Msg: "there is no secret " + quote(name),
						Hint: "an operator can set it: skep secret set " + name + " --to '" + target.Origin() + "/**'",
					}
				}
				if err != nil {
					return nil, err
				}
				o = &opened{Material: m}
				out[name] = o
			}
			if err := bound(o.Secret, target, s.place); err != nil {
				return nil, err
			}
			if err := s.fits(o.Secret); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (i *Injector) material(ctx context.Context, app agent.App, name string) (vault.Material, error) {
	if i.source == nil {
		return vault.Material{}, agent.Errorf(agent.NotFound, "there is no secret %s", quote(name))
	}
	return i.source.Material(ctx, app, name)
}

// audit writes down each secret at each place.
func audit(ctx context.Context, use Use, slots []*slot, secrets map[string]*opened, target agent.Request) error {
	type at struct {
		name  string
		place agent.Place
	}
	done := map[at]bool{}
	for _, s := range slots {
		for _, name := range s.names() {
			if done[at{name, s.place}] {
				continue
			}
			done[at{name, s.place}] = true
			host := strings.TrimPrefix(target.Origin(), target.Scheme+"://")
			if err := use.audit(ctx, secrets[name].Secret, target.Method, host, target.Path, s.place.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// audit writes down that a secret is about to be sent.
func (u Use) audit(ctx context.Context, s agent.Secret, method, host, path, place string) error {
	err := u.Audit(ctx, agent.SecretUse{
		Secret: s.Name, Version: s.Version, Method: method, Host: host, Path: clip(path), Place: place, Agent: u.Agent, Run: u.Run,
	})
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "the use of the secret "+quote(s.Name)+" could not be written down, so it was not used")
	}
	return nil
}

// bound returns a Denied error unless the secret may stand at a place of the target.
func bound(s agent.Secret, target agent.Request, p agent.Place) error {
	hint := "an operator can allow it: skep secret bind " + s.Name + " --bind '" + target.Origin() + "/** " + clip(p.String()) +
		"', which takes the place of its other bindings"
	var places []string
	for _, b := range s.Bindings {
		if !b.To.Has(target) {
			continue
		}
		if slices.Contains(b.In, p) {
			return nil
		}
		for _, in := range b.In {
			places = append(places, in.String())
		}
	}
	request := target.Method + " " + target.URL()
	if places == nil {
		return &agent.Error{Kind: agent.Denied, Hint: hint, Msg: "the secret " + quote(s.Name) + " is not bound to " + clip(request) + ", at " + clip(p.String())}
	}
	return &agent.Error{
		Kind: agent.Denied, Hint: hint,
		Msg: "the secret " + quote(s.Name) + " may not stand at " + clip(p.String()) + " of " + clip(request) + "; there it is bound to " + clip(strings.Join(places, ", ")),
	}
}

// sameTarget makes sure that bindings are held against where the request really goes.
func sameTarget(r *http.Request, target agent.Request) error {
	u := r.URL
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if got := (agent.Request{Method: r.Method, Scheme: u.Scheme, Host: u.Hostname(), Port: port, Path: path}); got != target {
		return agent.Errorf(agent.Internal, "a request to %s is not the one that was judged, to %s", clip(got.URL()), clip(target.URL()))
	}
	if r.Host != "" && r.Host != u.Host {
		return invalid("a request with a secret names another host than its URL", "leave the host header out")
	}
	return nil
}
