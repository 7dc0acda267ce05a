package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/skep-dev/skep/agent"
)

// Check reads a whole backup and verifies what it says of itself.
func Check(ctx context.Context, r io.Reader) (Manifest, Summary, error) {
	return read(ctx, r, sink{
		record: func(_, _ []byte) error { return nil },
		blob:   func(agent.Digest, []byte) error { return nil },
	})
}

// sink takes what is read from a backup. Nothing is to be trusted before read has returned without an error.
type sink struct {
	record func(key, value []byte) error // key and value are valid only during the call
	blob   func(agent.Digest, []byte) error
}

func read(ctx context.Context, r io.Reader, to sink) (Manifest, Summary, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return Manifest{}, Summary{}, broken("%v", err)
	}
	defer z.Close()
	m, sum, err := readTar(ctx, z, to)
	if err != nil {
		return Manifest{}, Summary{}, err
	}
	if _, err := io.Copy(io.Discard, z); err != nil { // to the checksum of Zstandard
		return Manifest{}, Summary{}, broken("%v", err)
	}
	return m, sum, nil
}

// readTar reads what Zstandard had compressed.
func readTar(ctx context.Context, r io.Reader, to sink) (Manifest, Summary, error) {
	in := &reading{ctx: ctx, tar: tar.NewReader(r), to: to, sum: sha256.New()}
	if err := in.begin(); err != nil {
		return Manifest{}, Summary{}, err
	}
	for !in.ended {
		if err := in.entry(); err != nil {
			return Manifest{}, Summary{}, err
		}
	}
	if _, err := in.tar.Next(); !errors.Is(err, io.EOF) {
		return Manifest{}, Summary{}, broken("it goes on after its end")
	}
	return in.manifest, in.got, nil
}

type reading struct {
	ctx      context.Context // of the one read that this serves
	tar      *tar.Reader
	to       sink
	sum      hash.Hash
	manifest Manifest
	chunks   int64
	got      Summary
	ended    bool
}

// begin reads the manifest.
func (in *reading) begin() error {
	h, err := in.tar.Next()
	if err != nil || h.Name != manifestName {
		return &agent.Error{Kind: agent.Invalid, Msg: "this is not a backup of Skep", Err: err, Hint: "skep backup --to FILE makes one"}
	}
	if err := in.json(h, &in.manifest); err != nil {
		return err
	}
	if v := in.manifest.Version; v != Version {
		return &agent.Error{
			Kind: agent.Unavailable, Msg: fmt.Sprintf("the backup has form %d; this Skep reads form %d", v, Version),
			Hint: "use the Skep that wrote it, which is " + in.manifest.Skep,
		}
	}
	return nil
}

func (in *reading) entry() error {
	if err := in.ctx.Err(); err != nil {
		return err
	}
	h, err := in.tar.Next()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return broken("it is cut short")
	}
	if err != nil {
		return broken("%v", err)
	}
	switch {
	case h.Name == endName:
		in.ended = true
		return in.end(h)
	case h.Name == fmt.Sprint(recordsDir, in.chunks) && in.got.Blobs == 0:
		in.chunks++
		b, err := in.bytes(h, maxChunk)
		if err != nil {
			return err
		}
		in.sum.Write(b)
		return eachPair(b, func(key, value []byte) error {
			in.got.Records++
			return in.to.record(key, value)
		})
	case strings.HasPrefix(h.Name, blobsDir):
		b, err := in.bytes(h, maxBlob)
		if err != nil {
			return err
		}
		d := agent.DigestOf(b)
		if d.Hex() != h.Name[len(blobsDir):] {
			return broken("the content of %.100q does not match its name", h.Name)
		}
		io.WriteString(in.sum, d.Hex())
		in.got.Blobs++
		return in.to.blob(d, b)
	}
	return broken("entry %.100q has no place in it", h.Name)
}

func (in *reading) end(h *tar.Header) error {
	var want Summary
	if err := in.json(h, &want); err != nil {
		return err
	}
	in.got.SHA256 = hex.EncodeToString(in.sum.Sum(nil))
	if in.got != want {
		return broken("it holds %d records and %d blobs with checksum %.12s, its end tells of %d, %d and %.12s",
			in.got.Records, in.got.Blobs, in.got.SHA256, want.Records, want.Blobs, want.SHA256)
	}
	return nil
}

func (in *reading) json(h *tar.Header, v any) error {
	b, err := in.bytes(h, maxText)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return broken("%s: %v", h.Name, err)
	}
	return nil
}

// bytes reads the content of an entry. Its memory grows with what is there, not with what the header says.
func (in *reading) bytes(h *tar.Header, limit int64) ([]byte, error) {
	if h.Typeflag != tar.TypeReg || h.Size > limit {
		return nil, broken("entry %.100q is too big, or no file", h.Name)
	}
	b, err := io.ReadAll(in.tar)
	if err != nil {
		return nil, broken("entry %.100q: %v", h.Name, err)
	}
	return b, nil
}
