package store

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/blob"
	"github.com/skep-dev/skep/store/instance"
)

// A record is its ordinal, its fields as JSON, and its bodies: bytes of any kind that JSON would change or bloat.
//
//	record = uvarint ordinal, uvarint length, JSON, body...
//	body   = 0                              none
//	       | 1, uvarint length, bytes       here
//	       | 2, 32 bytes SHA-256            in a blob
type row struct {
	ord    int64
	fields []byte
	bodies []body
}

type body struct {
	here []byte
	blob agent.Digest // set when the bytes are in a blob
}

func (b body) empty() bool { return len(b.here) == 0 && b.blob == "" }

const (
	bodyNone = iota
	bodyHere
	bodyBlob
)

// maxBody is the most bytes of one body that stay in the database. Two of them fit in one record.
const maxBody = instance.MaxInline

var errShort = errors.New("record is too short")

func (r row) encode() []byte {
	n := 2*binary.MaxVarintLen64 + len(r.fields)
	for _, b := range r.bodies {
		n += 1 + binary.MaxVarintLen64 + len(b.here) + 32
	}
	out := binary.AppendUvarint(make([]byte, 0, n), uint64(r.ord))
	out = appendBytes(out, r.fields)
	for _, b := range r.bodies {
		switch {
		case b.blob != "":
			sum, _ := hex.DecodeString(b.blob.Hex())
			out = append(append(out, bodyBlob), sum...)
		case len(b.here) > 0:
			out = appendBytes(append(out, bodyHere), b.here)
		default:
			out = append(out, bodyNone)
		}
	}
	return out
}

func appendBytes(out, b []byte) []byte {
	return append(binary.AppendUvarint(out, uint64(len(b))), b...)
}

// decodeRow reads a record. What it returns shares no memory with b.
func decodeRow(b []byte) (row, error) {
	var r row
	ord, n := binary.Uvarint(b)
	if n <= 0 || ord > 1<<62 {
		return row{}, errShort
	}
	r.ord = int64(ord)
	var err error
	if r.fields, b, err = cutBytes(b[n:]); err != nil {
		return row{}, err
	}
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		var bd body
		switch kind {
		case bodyNone:
		case bodyHere:
			if bd.here, b, err = cutBytes(b); err != nil {
				return row{}, err
			}
		case bodyBlob:
			if len(b) < 32 {
				return row{}, errShort
			}
			bd.blob = agent.Digest("sha256:" + hex.EncodeToString(b[:32]))
			b = b[32:]
		default:
			return row{}, errors.New("record has an unknown kind of body")
		}
		r.bodies = append(r.bodies, bd)
	}
	return r, nil
}

func cutBytes(b []byte) (cut, rest []byte, err error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return nil, nil, errShort
	}
	b = b[k:]
	return append([]byte(nil), b[:n]...), b[n:], nil
}

// stow returns b as a record keeps it: here up to limit bytes, else in a blob.
func (s *Store) stow(b []byte, limit int) (body, error) {
	if len(b) <= limit {
		return body{here: b}, nil
	}
	d, err := s.putBlob(b)
	return body{blob: d}, err
}

// fetch returns the bytes of body i of the record at k.
func (s *Store) fetch(k key, r row, i int) ([]byte, error) {
	if i >= len(r.bodies) {
		return nil, corrupt(k, "%v", errShort)
	}
	if r.bodies[i].blob == "" {
		return r.bodies[i].here, nil
	}
	b, err := s.blobs.Get(r.bodies[i].blob)
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, blob.ErrCorrupt):
		return nil, corrupt(k, "its data: %v", err)
	}
	return nil, agent.Wrap(agent.Unavailable, err, "the data could not be read from disk")
}

// record reads the record at k, which something names, into v.
func record(g getter, k key, v any) (row, error) {
	r, found, err := lookup(g, k, v)
	if err == nil && !found {
		err = corrupt(k, "record is missing")
	}
	return r, err
}

// lookup reads the record at k, if there is one, into v.
func lookup(g getter, k key, v any) (row, bool, error) {
	b, found, err := g.get(k)
	if err != nil || !found {
		return row{}, false, err
	}
	r, err := parse(k, b, v)
	return r, err == nil, err
}

func parse(k key, payload []byte, v any) (row, error) {
	r, err := decodeRow(payload)
	if err == nil && v != nil {
		err = json.Unmarshal(r.fields, v)
	}
	if err != nil {
		return row{}, corrupt(k, "%v", err)
	}
	return r, nil
}

// save writes v and its bodies as the record at k.
func (t *tx) save(k key, ord int64, v any, bodies ...body) error {
	fields, err := json.Marshal(v)
	if err != nil {
		return agent.Wrap(agent.Invalid, err, "the record cannot be written as JSON")
	}
	t.put(k, row{ord, fields, bodies}.encode())
	return nil
}

// plainJSON is json.Marshal without escapes for HTML, which would make what is bounded longer.
func plainJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}
