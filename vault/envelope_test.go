package vault

import (
	"bytes"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/kek"
)

// FuzzEnvelope opens sealed values of which somebody with the data directory has changed something, or put one in the place of another: only what was sealed
// opens, where it was sealed. What a re-wrap takes opens with the other key, and says the same.
func FuzzEnvelope(f *testing.F) {
	open := func() *kek.Key {
		k, err := new(kek.Opener).Open(f.Context(), "memory", nil, kek.Make)
		if err != nil {
			f.Fatal(err)
		}
		return k
	}
	old, other := open(), open()
	f.Add([]byte("value"), 0, byte(0), 1<<10, []byte{0, 0, 0, 1, 7})
	f.Add([]byte{}, 3, byte(1), 1<<10, []byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte("v"), 40, byte(0x80), 30, []byte{})
	f.Fuzz(func(t *testing.T, value []byte, at int, change byte, most int, raw []byte) {
		ctx := t.Context()
		here, there := place("a", "n", agent.SecretVersion{Version: 1}), place("a", "n", agent.SecretVersion{Version: 2})
		good, err := sealValue(ctx, old, here, value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := openValue(ctx, old, here, good); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%q is %q, %v", value, got, err)
		}
		changed := bytes.Clone(good)
		if at >= 0 && at < len(changed) {
			changed[at] ^= change
		}
		changed = changed[:min(max(most, 0), len(changed))]
		for _, b := range [][]byte{changed, raw} {
			if got, err := openValue(ctx, old, here, b); err == nil && !bytes.Equal(b, good) {
				t.Fatalf("%x opens as %q", b, got)
			}
			again, err := rewrapValue(ctx, old, other, b)
			if err != nil {
				continue
			}
			if got, err := openValue(ctx, other, here, again); err == nil && (!bytes.Equal(b, good) || !bytes.Equal(got, value)) {
				t.Fatalf("%x was wrapped again and opens as %q", b, got)
			}
		}
		if _, err := openValue(ctx, old, there, good); err == nil {
			t.Fatal("it opens in another place")
		}
		if again, err := rewrapValue(ctx, old, other, good); err != nil {
			t.Fatal(err)
		} else if _, err := openValue(ctx, old, here, again); err == nil {
			t.Fatal("the old key opens what was wrapped again")
		}
	})
}
