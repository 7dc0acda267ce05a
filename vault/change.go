package vault

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Keep is how many versions of a secret are kept; the oldest beyond them are dropped.
const Keep = 10

// The bounds of what is kept beside a value.
const (
	maxBindings    = 64
	maxPlaces      = 16
	maxDescription = 1000
)

// By is whose change it is, for the audit.
type By struct {
	Token   agent.TokenID
	Request string // id of the request
}

// Put is a value to set. What is nil stays as it is; of a new secret it is empty.
type Put struct {
	Kind        agent.SecretKind // UnknownSecret means the kind it has, or SecretValue
	Value       []byte           // see CheckValue; Set overwrites it
	Description *string
	Bindings    *[]agent.Binding
}

// Patch changes what is not nil.
type Patch struct {
	Description *string          `json:"description,omitempty"`
	Bindings    *[]agent.Binding `json:"bindings,omitempty" doc:"all of them: TARGET, then the places (header:NAME, query:NAME, body:NAME) where the secret may stand"`
}

// Set gives a secret a new value, which becomes its next and current version.
func (v *Vault) Set(ctx context.Context, by By, app agent.App, name string, p Put) (Info, error) {
	if err := agent.CheckName("secret", name); err != nil {
		clear(p.Value)
		return Info{}, err
	}
	return v.set(ctx, by, app, name, p, Keep)
}

// set keeps as many versions as keep says.
func (v *Vault) set(ctx context.Context, by By, app agent.App, name string, p Put, keep int) (Info, error) {
	defer clear(p.Value)
	v.write.Lock()
	defer v.write.Unlock()
	key, err := v.usable()
	if err != nil {
		return Info{}, err
	}
	s, err := v.st.Secret(ctx, app, name)
	switch {
	case agent.KindOf(err) == agent.NotFound && err != nil:
		s = store.Secret{Secret: agent.Secret{App: app, Name: name, Kind: agent.SecretValue}}
	case err != nil:
		return Info{}, err
	default:
		if err := v.checkSeal(ctx, s); err != nil {
			return Info{}, err
		}
	}
	if p.Kind != agent.UnknownSecret {
		s.Kind = p.Kind
	}
	value, err := CheckValue(s.Kind, p.Value)
	if err != nil {
		return Info{}, err
	}
	defer clear(value)
	if err := (Patch{p.Description, p.Bindings}).apply(&s.Secret); err != nil {
		return Info{}, err
	}
	s.Last++
	ver := agent.SecretVersion{Version: s.Last, Kind: s.Kind, Created: v.now(), Key: key.ID}
	b, err := sealValue(ctx, key, place(app, name, ver), value)
	if err != nil {
		return Info{}, err
	}
	s.Version = ver.Version
	s.Versions = append(s.Versions, ver)
	s.Versions = s.Versions[max(0, len(s.Versions)-keep):]
	return v.save(ctx, by, "secret.set", fmt.Sprintf("version %d, %s", s.Version, bound(s.Bindings)), s, map[int][]byte{ver.Version: b})
}

// Change changes a secret's description or what it is bound to, and not its value.
func (v *Vault) Change(ctx context.Context, by By, app agent.App, name string, p Patch) (Info, error) {
	v.write.Lock()
	defer v.write.Unlock()
	s, err := v.forChange(ctx, app, name)
	if err != nil {
		return Info{}, err
	}
	if err := p.apply(&s.Secret); err != nil {
		return Info{}, err
	}
	return v.save(ctx, by, "secret.bind", bound(s.Bindings), s, nil)
}

// Rollback makes a version that is kept the current one. A value set afterwards is still a new version.
func (v *Vault) Rollback(ctx context.Context, by By, app agent.App, name string, version int) (Info, error) {
	v.write.Lock()
	defer v.write.Unlock()
	s, err := v.forChange(ctx, app, name)
	if err != nil {
		return Info{}, err
	}
	i := slices.IndexFunc(s.Versions, func(ver agent.SecretVersion) bool { return ver.Version == version })
	if i < 0 {
		var kept []string
		for _, ver := range s.Versions {
			kept = append(kept, fmt.Sprint(ver.Version))
		}
		return Info{}, &agent.Error{
			Kind: agent.NotFound, Msg: fmt.Sprintf("secret %q has no version %d", name, version),
			Hint: "kept are " + strings.Join(kept, ", "),
		}
	}
	s.Version, s.Kind = version, s.Versions[i].Kind
	if err := checkBindings(s.Kind, s.Bindings); err != nil {
		return Info{}, err
	}
	return v.save(ctx, by, "secret.rollback", fmt.Sprintf("version %d", version), s, nil)
}

// Delete deletes a secret with all its versions.
func (v *Vault) Delete(ctx context.Context, by By, app agent.App, name string) error {
	if err := unknown(name); err != nil {
		return err
	}
	v.write.Lock()
	defer v.write.Unlock()
	return v.delete(ctx, by, app, name)
}

// delete is Delete. The caller holds v.write.
func (v *Vault) delete(ctx context.Context, by By, app agent.App, name string) error {
	if _, err := v.st.Secret(ctx, app, name); err != nil {
		return err
	}
	if err := v.audit(ctx, by, app, "secret.delete", name, ""); err != nil {
		return err
	}
	defer v.cache.changed(cacheKey{app, name}) // a commit that failed may have happened
	return v.st.DeleteSecret(ctx, app, name)
}

// forChange returns a secret, once it is known to be as the vault stored it. The caller holds v.write.
func (v *Vault) forChange(ctx context.Context, app agent.App, name string) (store.Secret, error) {
	if err := unknown(name); err != nil {
		return store.Secret{}, err
	}
	s, err := v.st.Secret(ctx, app, name)
	if err != nil {
		return s, err
	}
	if _, err := v.usable(); err != nil {
		return s, err
	}
	return s, v.checkSeal(ctx, s)
}

// save seals and stores a secret that was changed. The caller holds v.write.
func (v *Vault) save(ctx context.Context, by By, action, detail string, s store.Secret, values map[int][]byte) (Info, error) {
	key, err := v.usable()
	if err != nil {
		return Info{}, err
	}
	if s, err = sealed(ctx, key, s); err != nil {
		return Info{}, err
	}
	s.Updated = v.now()
	if err := v.audit(ctx, by, s.App, action, s.Name, detail); err != nil {
		return Info{}, err
	}
	defer v.cache.changed(cacheKey{s.App, s.Name}) // a commit that failed may have happened
	if s, err = v.st.SaveSecret(ctx, s, values); err != nil {
		return Info{}, err
	}
	return infoOf(s), nil
}

func (v *Vault) audit(ctx context.Context, by By, app agent.App, action, name, detail string) error {
	if v.o.Audit == nil {
		return nil
	}
	return v.o.Audit(ctx, app, agent.Change{Token: by.Token, Request: by.Request, Action: action, Name: name, Detail: detail})
}

func (p Patch) apply(s *agent.Secret) error {
	if p.Description != nil {
		if len(*p.Description) > maxDescription {
			return agent.Errorf(agent.Invalid, "the description is longer than %d bytes", maxDescription)
		}
		s.Description = *p.Description
	}
	if p.Bindings != nil {
		s.Bindings = slices.Clone(*p.Bindings)
	}
	return checkBindings(s.Kind, s.Bindings)
}

// checkBindings puts places in order.
func checkBindings(kind agent.SecretKind, bs []agent.Binding) error {
	if len(bs) > maxBindings {
		return agent.Errorf(agent.Invalid, "%d bindings are more than %d", len(bs), maxBindings)
	}
	for i := range bs {
		b := &bs[i]
		b.In = slices.Clone(b.In)
		slices.SortFunc(b.In, func(x, y agent.Place) int { return strings.Compare(x.String(), y.String()) })
		b.In = slices.Compact(b.In)
		if len(b.In) == 0 || len(b.In) > maxPlaces {
			return agent.Errorf(agent.Invalid, "binding %s must have from 1 to %d places", b, maxPlaces)
		}
		if kind != agent.SecretValue && !slices.Equal(b.In, []agent.Place{agent.PlaceAuthorization()}) {
			return &agent.Error{
				Kind: agent.Invalid, Msg: fmt.Sprintf("binding %s: a secret of kind %s goes to the Authorization header alone", b, kind),
				Hint: "leave the places out: " + b.To.String(),
			}
		}
	}
	return nil
}

// bound says bindings in an audit log.
func bound(bs []agent.Binding) string {
	if len(bs) == 0 {
		return "bound to nothing"
	}
	texts := make([]string, len(bs))
	for i, b := range bs {
		texts[i] = b.String()
	}
	return "bound to " + strings.Join(texts, "; ")
}
