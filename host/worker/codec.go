package worker

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/skep-dev/skep/internal/wire"
)

// errNonsense is what every decoder reports: the other side does not speak the protocol.
var errNonsense = errors.New("the message cannot be read")

// encoder appends values to a message. Numbers are varints; strings and bytes come after their length.
type encoder []byte

func (e *encoder) uint(n uint64)  { *e = binary.AppendUvarint(*e, n) }
func (e *encoder) int(n int64)    { *e = binary.AppendVarint(*e, n) }
func (e *encoder) byte(b byte)    { *e = append(*e, b) }
func (e *encoder) bytes(b []byte) { e.uint(uint64(len(b))); *e = append(*e, b...) }
func (e *encoder) text(s string)  { e.uint(uint64(len(s))); *e = append(*e, s...) }

func (e *encoder) bool(b bool) {
	if b {
		e.byte(1)
	} else {
		e.byte(0)
	}
}

func (e *encoder) texts(ss []string) {
	e.uint(uint64(len(ss)))
	for _, s := range ss {
		e.text(s)
	}
}

// put writes a map in the order of its keys.
func put[V any](e *encoder, m map[string]V, value func(V)) {
	e.uint(uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		e.text(k)
		value(m[k])
	}
}

// decoder reads values from a message, as an encoder has put them there; done tells whether all were there.
type decoder struct{ wire.Reader }

func newDecoder(b []byte) *decoder { return &decoder{wire.Reader{B: b}} }

// done reports whether the message held what was read, and nothing else.
func (d *decoder) done() error {
	if !d.Done() {
		return errNonsense
	}
	return nil
}

func (d *decoder) byte() byte {
	if len(d.B) == 0 {
		d.Fail()
		return 0
	}
	b := d.B[0]
	d.B = d.B[1:]
	return b
}

func (d *decoder) bool() bool {
	b := d.byte()
	if b > 1 {
		d.Fail()
	}
	return b == 1
}

// below reads a small number that names one of a set.
func (d *decoder) below(n byte) byte {
	b := d.byte()
	if b >= n {
		d.Fail()
		return 0
	}
	return b
}

func (d *decoder) text() string { return string(d.Bytes()) }

// count reads how many elements follow, of at least a byte each.
func (d *decoder) count() int {
	n := d.Uint()
	if n > uint64(len(d.B)) {
		d.Fail()
		return 0
	}
	return int(n)
}

func (d *decoder) texts() []string {
	var ss []string
	for range d.count() {
		ss = append(ss, d.text())
	}
	return ss
}

func get[V any](d *decoder, value func() V) map[string]V {
	n := d.count()
	if n == 0 {
		return nil
	}
	m := map[string]V{}
	for range n {
		if d.Bad {
			return nil
		}
		k := d.text()
		m[k] = value()
	}
	return m
}
