package store

import (
	"context"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Record is one record as the database holds it, and the blobs that it names.
type Record struct {
	Key, Value []byte // valid only during the call
	Blobs      []agent.Digest
}

// Export calls fn for every record of one snapshot, in the order of the keys. A damaged record is an error. The blobs can
// be read during the export and after: what a record names is never removed. Another store is made by applying the same
// keys and values to an empty database.
func (s *Store) Export(ctx context.Context, fn func(Record) error) error {
	return s.view(ctx, func(snap snapshot) error {
		return snap.Scan(nil, nil, false, func(k, v []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			payload, err := unseal(key(k), v)
			if err != nil {
				return err
			}
			blobs, err := named(key(k), payload)
			if err != nil {
				return err
			}
			return fn(Record{k, v, blobs})
		})
	})
}

// named returns the blobs that the record at k names.
func named(k key, payload []byte) (out []agent.Digest, err error) {
	isRecord := strings.HasPrefix(string(k), prefixRec)
	isDoc := strings.HasPrefix(string(k), prefixDoc)
	isInst := strings.HasPrefix(string(k), prefixInst)
	isSandbox := strings.HasPrefix(string(k), prefixSandbox)
	if !isRecord && !isInst && !isDoc && !isSandbox && !(strings.HasPrefix(string(k), prefixLog) && !strings.HasSuffix(string(k), "/head")) {
		return nil, nil
	}
	r, err := parse(k, payload, nil)
	if err != nil {
		return nil, err
	}
	if isRecord && space(k.parts(prefixRec)[0]) == plugins {
		var p agent.Plugin
		if _, err := parse(k, payload, &p); err != nil {
			return nil, err
		}
		out = append(out, p.Digest)
	}
	if isSandbox {
		var sb agent.SandboxRecord
		if _, err := parse(k, payload, &sb); err != nil {
			return nil, err
		}
		return sb.Checkpoint.Blobs(), nil
	}
	if isDoc {
		if out, err = docBlobs(Docs(k.parts(prefixDoc)[0]), r.fields); err != nil {
			return nil, corrupt(k, "%v", err)
		}
		return out, nil
	}
	if isInst || strings.HasPrefix(string(k), prefixLog+journalLog.String()+"/") {
		if out, err = instBlobs(k, r.fields); err != nil {
			return nil, err
		}
	}
	for _, b := range r.bodies {
		if b.blob != "" {
			out = append(out, b.blob)
		}
	}
	return out, nil
}

// Blobs calls fn for each blob that is on disk, whether anything names it or not.
func (s *Store) Blobs(ctx context.Context, fn func(d agent.Digest, size int64) error) error {
	return s.blobs.Each(func(d agent.Digest, size int64) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fn(d, size)
	})
}

// WasClosed reports whether the store had been closed when Open opened it.
func (s *Store) WasClosed() bool { return s.wasClosed }
