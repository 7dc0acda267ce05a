package cell

import (
	"bytes"
	"testing"
)

// What a guest has grown by is given back piece by piece.
func TestMemoryIsFreedInPieces(t *testing.T) {
	all := &budget{most: 1 << 30}
	ms := newMemories(false, all)
	defer ms.close()
	back, err := ms.backing(bytes.Repeat([]byte{7}, pageSize), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer back.close()
	m, err := back.newMemory(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	if m.grown() {
		t.Error("a new memory has grown")
	}
	const pieces = 5
	b := m.Reallocate(pieces*muchGrown - pageSize)
	for i := range b {
		b[i] = 9
	}
	if !m.grown() {
		t.Error("a memory that is much larger than its image has not grown")
	}
	if _, ok := m.(*mappedMemory); !ok {
		t.Skip("there is no memfd here")
	}
	for n := 1; ; n++ {
		more := m.free()
		for i, x := range b {
			want := byte(9)
			if i < n*muchGrown {
				want = 0
				if i < pageSize {
					want = 7
				}
			}
			if x != want {
				t.Fatalf("after %d pieces byte %d is %d, want %d", n, i, x, want)
			}
		}
		if more != (n < pieces) {
			t.Fatalf("after %d pieces of %d there is more: %v", n, pieces, more)
		}
		if !more {
			return
		}
	}
}
