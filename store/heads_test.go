package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// FuzzHeads reads records that are a few numbers, keys that name something, and cursors, all of which may be anything. What is taken is written as it was;
// what is not, is called damaged.
func FuzzHeads(f *testing.F) {
	numbers := func(ns ...int64) []byte { return encodeNumbers(ns...) }
	f.Add("doc/files/default/s/a~b", "", numbers(3, 2, 9))
	f.Add("state-gone/agent/default/A", cursor("p", 7), numbers(1, 0))
	f.Add("state/instance/default/A/k/n", nameCursor("p", "a/ä"), numbers(-1, 5))
	f.Add("inst/default/A/~2f/x", "AAAAAAAAAAAAAAAA", numbers(4, 4, 4))
	f.Fuzz(func(t *testing.T, name, page string, b []byte) {
		k := key(name)
		numbers := func(what string, err error, ns ...int64) {
			t.Helper()
			var damage *CorruptError
			switch {
			case err != nil && !errors.As(err, &damage):
				t.Errorf("%s: %v", what, err)
			case err == nil && !bytes.Equal(numbers(ns...), b):
				t.Errorf("%s of %x is %v", what, b, ns)
			}
		}
		d, err := parseDocHead(k, b)
		numbers("documents", err, d.rev, d.count, d.bytes)
		x, err := parseExtent(k, b)
		numbers("a log", err, x.first, x.last)
		s, err := parseStateHead(k, b)
		numbers("a state", err, s.version, s.size.Keys, s.size.Bytes)
		box, err := parseSandboxHead(k, b)
		numbers("sandboxes", err, box.all, box.held)
		h, err := parseHead(k, b)
		numbers("a collection", err, h.last, h.live)
		var one, two int64
		numbers("numbers", parseNumbers(k, b, &one, &two), one, two)

		if d, err := parseDocKey(k); err == nil && d.key() != k {
			t.Errorf("%q is the key of %+v, which is %q", k, d, d.key())
		}
		if o, err := parseGone(k); err == nil && o.goneKey() != k {
			t.Errorf("%q is the key of %+v, which is %q", k, o, o.goneKey())
		}
		if o, err := parseOwner(k); err == nil && o.headKey() == "" {
			t.Errorf("%q has an owner without a head", k)
		}
		_, _, _ = parseInst(k, prefixInst)
		if ord, err := parseCursor(k, page); err == nil && cursor(k, ord) != page {
			t.Errorf("the cursor %q is of %d", page, ord)
		}
		if last, err := parseNameCursor(k, page); err == nil && nameCursor(k, last) != page {
			t.Errorf("the cursor %q is of %q", page, last)
		}
		// One that is of this list is taken, and not in another.
		if made := nameCursor(k, page); true {
			if last, err := parseNameCursor(k, made); err != nil || last != page {
				t.Errorf("%q became %q, %v", page, last, err)
			}
			if _, err := parseNameCursor(k+"x", made); err == nil {
				t.Errorf("the cursor %q is taken for one of another list", made)
			}
		}
		if len(b) >= 8 {
			if ord := int64(binary.BigEndian.Uint64(b)); ord != 0 {
				if got, err := parseCursor(k, cursor(k, ord)); err != nil || got != ord {
					t.Errorf("%d became %d, %v", ord, got, err)
				}
			}
		}
	})
}
