package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Write writes all of st to w, as it is at one moment; st is used meanwhile. A damaged store is an error.
func Write(ctx context.Context, st *store.Store, w io.Writer, m Manifest) (Summary, error) {
	m.Version, m.Created = Version, m.Created.UTC().Truncate(time.Second)
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return Summary{}, fmt.Errorf("write backup: %w", err)
	}
	defer z.Close()
	a := &archive{tar: tar.NewWriter(z), at: m.Created, sum: sha256.New()}
	if err := a.json(manifestName, m); err != nil {
		return Summary{}, err
	}
	if err := a.store(ctx, st); err != nil {
		return Summary{}, err
	}
	a.end.SHA256 = hex.EncodeToString(a.sum.Sum(nil))
	if err := a.json(endName, a.end); err != nil {
		return Summary{}, err
	}
	if err := a.tar.Close(); err != nil {
		return Summary{}, fmt.Errorf("write backup: %w", err)
	}
	if err := z.Close(); err != nil {
		return Summary{}, fmt.Errorf("write backup: %w", err)
	}
	return a.end, nil
}

type archive struct {
	tar   *tar.Writer
	at    time.Time
	sum   hash.Hash
	chunk []byte
	files int64 // chunks written
	end   Summary
}

func (a *archive) store(ctx context.Context, st *store.Store) error {
	var blobs []agent.Digest
	known := map[agent.Digest]bool{}
	err := st.Export(ctx, func(r store.Record) error {
		for _, d := range r.Blobs {
			if !known[d] {
				known[d] = true
				blobs = append(blobs, d)
			}
		}
		a.chunk = appendPair(a.chunk, r.Key, r.Value)
		a.end.Records++
		if len(a.chunk) < chunkSize {
			return nil
		}
		return a.flush()
	})
	if err == nil && len(a.chunk) > 0 {
		err = a.flush()
	}
	if err != nil {
		return err
	}
	for _, d := range blobs {
		b, err := st.Blob(ctx, d)
		if err != nil {
			return err
		}
		io.WriteString(a.sum, d.Hex())
		if err := a.file(blobsDir+d.Hex(), b); err != nil {
			return err
		}
		a.end.Blobs++
	}
	return nil
}

func (a *archive) flush() error {
	a.sum.Write(a.chunk)
	err := a.file(fmt.Sprint(recordsDir, a.files), a.chunk)
	a.files++
	a.chunk = a.chunk[:0]
	return err
}

func (a *archive) json(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return a.file(name, append(b, '\n'))
}

func (a *archive) file(name string, b []byte) error {
	err := a.tar.WriteHeader(&tar.Header{Name: name, Size: int64(len(b)), Mode: 0o600, ModTime: a.at})
	if err == nil {
		_, err = a.tar.Write(b)
	}
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}
