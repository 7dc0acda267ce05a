package vault

import (
	"context"
	"errors"

	"github.com/skep-dev/skep/agent"
)

// Material is a secret with its current value: bytes as they were set, or for a typed secret the JSON that agent.SecretKind
// says, with every member a string. The value is the receiver's own, to overwrite when it is done.
type Material struct {
	Secret agent.Secret
	Value  []byte `json:"-"`
}

// String keeps the value out of whatever is printed.
func (m Material) String() string { return "secret " + m.Secret.Name }

// GoString is String.
func (m Material) GoString() string { return m.String() }

// Material returns a secret for the host to use. It asks no one whether that is granted.
func (v *Vault) Material(ctx context.Context, app agent.App, name string) (Material, error) {
	if err := unknown(name); err != nil {
		return Material{}, err
	}
	return v.material(ctx, app, name)
}

func (v *Vault) material(ctx context.Context, app agent.App, name string) (Material, error) {
	k := cacheKey{app, name}
	m, gen, found := v.cache.get(k)
	if found {
		return m, nil
	}
	for try := 0; ; try++ {
		m, err := v.read(ctx, app, name)
		if errors.Is(err, errGone) && try == 0 { // a re-wrap ended between the reading and the opening
			continue
		}
		if err != nil {
			return Material{}, refusal(name, err)
		}
		v.cache.keep(k, m, gen)
		return m, nil
	}
}

func (v *Vault) read(ctx context.Context, app agent.App, name string) (Material, error) {
	if _, err := v.usable(); err != nil {
		return Material{}, err
	}
	s, values, err := v.st.SealedSecret(ctx, app, name)
	if err != nil {
		return Material{}, err
	}
	// The place is the one that was asked for, whatever the record says of itself.
	if s.App != app || s.Name != name {
		return Material{}, errors.New("the record is of another secret")
	}
	if err := v.checkSeal(ctx, s); err != nil {
		return Material{}, err
	}
	for _, ver := range s.Versions {
		if ver.Version != s.Version {
			continue
		}
		key := v.key(ver.Key)
		if key == nil {
			return Material{}, errGone
		}
		if ver.Kind != s.Kind {
			return Material{}, errors.New("the version is of another kind")
		}
		value, err := openValue(ctx, key, place(app, name, ver), values[s.Version])
		if err != nil {
			return Material{}, err
		}
		return Material{infoOf(s).Secret, value}, nil
	}
	return Material{}, errors.New("the current version is not listed")
}
