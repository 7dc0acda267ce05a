package wire

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestReader(t *testing.T) {
	b := binary.AppendUvarint(nil, 300)
	b = binary.AppendVarint(b, -7)
	b = binary.LittleEndian.AppendUint64(b, 1<<60)
	b = append(binary.AppendUvarint(b, 3), "abc"...)
	b = append(binary.AppendUvarint(b, 0), 9)
	read := func(b []byte) (r Reader, ok bool) {
		r.B = b
		ok = r.Number(300) == 300 && r.Int() == -7 && r.Fixed() == 1<<60 && bytes.Equal(r.Bytes(), []byte("abc")) && r.Bytes() == nil && r.Uint() == 9
		return r, ok
	}
	if r, ok := read(b); !ok || !r.Done() {
		t.Errorf("%v %+v", ok, r)
	}
	for n := range b {
		if r, _ := read(b[:n]); r.Done() || !r.Bad || r.Uint() != 0 || r.Int() != 0 || r.Fixed() != 0 || r.Bytes() != nil {
			t.Errorf("%d of %d bytes: %+v", n, len(b), r)
		}
	}
	if r := (Reader{B: binary.AppendUvarint(nil, 301)}); r.Number(300) != 0 || !r.Bad {
		t.Error("a number past its bound was read")
	}
	if r := (Reader{B: []byte{5, 1, 2}}); r.Bytes() != nil || !r.Bad {
		t.Error("more bytes than there are were read")
	}
	if r := (Reader{B: b, Bad: false}); r.Done() {
		t.Error("bytes were left")
	}
}
