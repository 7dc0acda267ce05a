package store_test

import (
	"bytes"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

func TestImageSeed(t *testing.T) {
	old := bytes.Repeat([]byte{7}, store.SeedSize)
	for _, bad := range [][]byte{old[1:], append(old, 7)} {
		if _, err := openStore(t, memkv.New(), t.TempDir(), nil).ImageSeed(t.Context(), bad); agent.KindOf(err) != agent.Invalid {
			t.Errorf("a seed of %d bytes: %v", len(bad), err)
		}
	}
	s := openStore(t, memkv.New(), t.TempDir(), nil)
	if got, err := s.ImageSeed(t.Context(), old); err != nil || !bytes.Equal(got, old) {
		t.Errorf("taken over: %x, %v", got, err)
	}
	if got, err := s.ImageSeed(t.Context(), bytes.Repeat([]byte{8}, store.SeedSize)); err != nil || !bytes.Equal(got, old) {
		t.Errorf("where there is one: %x, %v", got, err)
	}
	drawn, err := openStore(t, memkv.New(), t.TempDir(), nil).ImageSeed(t.Context(), nil)
	if err != nil || len(drawn) != store.SeedSize || bytes.Equal(drawn, make([]byte, store.SeedSize)) {
		t.Errorf("drawn: %x, %v", drawn, err)
	}
	if other, err := openStore(t, memkv.New(), t.TempDir(), nil).ImageSeed(t.Context(), nil); err != nil || bytes.Equal(other, drawn) {
		t.Errorf("drawn by another: %x, %v", other, err)
	}
}
