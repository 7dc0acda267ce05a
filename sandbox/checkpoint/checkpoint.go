// Package checkpoint says what is in a tar of a sandbox's files, and reads one that comes from a sandbox, which may hold anything.
package checkpoint

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Bounds of what is listed.
const (
	maxFiles = 50_000
	maxNames = 8 << 20 // bytes of all names and targets
)

// File is what a manifest says of a file of a tar.
type File struct {
	Path   string `json:"path"`
	Type   string `json:"type"` // file, dir, link
	Mode   int64  `json:"mode"`
	Size   int64  `json:"size"`
	Digest string `json:"sha256,omitempty"`
	Target string `json:"target,omitempty"`
}

// Manifest is what is known of the checkpoint of a sandbox.
type Manifest struct {
	Sandbox     agent.SandboxID `json:"sandbox"`
	Generation  int64           `json:"generation"`
	Environment string          `json:"environment"` // NAME@REVISION
	Created     time.Time       `json:"created"`
	Digest      agent.Digest    `json:"digest"` // of the tar
	Bytes       int64           `json:"bytes"`  // of the tar
	Files       []File          `json:"files"`
}

// List reads a tar to its end, and says what is in it.
func List(r io.Reader) (list []File, err error) {
	t, names := tar.NewReader(r), 0
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r) // what pads it
			return list, err
		}
		if err != nil {
			return nil, noTar(err)
		}
		if names += len(h.Name) + len(h.Linkname); len(list) >= maxFiles || names > maxNames {
			return nil, agent.Exceeded(agent.LimitInput, "a checkpoint has more than %d files, or more than %d bytes of names", maxFiles, maxNames)
		}
		f := File{Path: h.Name, Mode: h.Mode, Size: h.Size, Target: h.Linkname}
		switch h.Typeflag {
		case tar.TypeReg:
			f.Type = "file"
			sum := sha256.New()
			if _, err := io.Copy(sum, t); err != nil {
				return nil, noTar(err)
			}
			f.Digest = hex.EncodeToString(sum.Sum(nil))
		case tar.TypeDir:
			f.Type = "dir"
		default:
			f.Type = "link"
		}
		list = append(list, f)
	}
}

// noTar is the error of reading a tar: one of the connection by which it comes, which says what it is, or one of what it holds.
func noTar(err error) error {
	if _, told := errors.AsType[*agent.Error](err); told {
		return err
	}
	return agent.Errorf(agent.Invalid, "it is no tar: %s", err)
}

// Keep has put keep the bytes of a tar as they come, and says what is in it.
func Keep(r io.Reader, put func(io.Reader) error) ([]File, error) {
	type listed struct {
		files []File
		err   error
	}
	seen, watched := io.Pipe()
	list := make(chan listed, 1)
	go func() {
		files, err := List(seen)
		_ = seen.CloseWithError(err) // which is then the error of put
		list <- listed{files, err}
	}()
	err := put(io.TeeReader(r, watched))
	_ = watched.CloseWithError(err) // nil is the end
	got := <-list
	if err != nil {
		return nil, err
	}
	return got.files, got.err
}
