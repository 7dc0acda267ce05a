package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/sandbox/checkpoint"
)

// manifestExt ends the name of a checkpoint's manifest.
const manifestExt = ".json"

// maxManifest is the most bytes of one.
const maxManifest = 32 << 20

// savedManifest is what is in a checkpoint.
type savedManifest struct {
	Sandbox     agent.SandboxID   `json:"sandbox"`
	Environment string            `json:"environment"`
	Run         agent.RunID       `json:"run"`
	Paths       []string          `json:"paths,omitempty"`
	Digest      agent.Digest      `json:"digest"` // of the tar
	Files       []checkpoint.File `json:"files"`
}

func (m *savedManifest) told(file string) abi.SandboxSaved {
	out := abi.SandboxSaved{File: file, Digest: string(m.Digest), Files: len(m.Files)}
	for _, f := range m.Files {
		out.Bytes += f.Size
	}
	return out
}

// saveIn keeps paths of the workspace: a tar, and a manifest with a digest of each file, which is there only when the tar is.
func (b *toolbox) saveIn(ctx context.Context, box Box, q abi.SandboxSave) (abi.SandboxSaved, error) {
	for _, p := range q.Paths {
		if path.IsAbs(p) || p == "" || slices.Contains(strings.Split(p, "/"), "..") {
			return abi.SandboxSaved{}, agent.Errorf(agent.Invalid, "%.200q is no path within the workspace", p)
		}
	}
	name := q.File
	if name == "" {
		name = b.artifact(ctx, ".tar")
	}
	sb := box.Record()
	m := savedManifest{Sandbox: sb.ID, Environment: sb.Environment, Run: b.job.Run, Paths: q.Paths}
	err := link.Receive(ctx, box, driver.DoArchive, func(s *driver.Stream) any { return driver.ArchiveArgs{Paths: q.Paths, Stream: s} }, nil, func(r io.Reader) error {
		var kept agent.File
		files, err := checkpoint.Keep(r, func(r io.Reader) (err error) {
			kept, err = b.keepFile(ctx, name, "application/x-tar", r)
			return err
		})
		m.Digest, m.Files = kept.Digest, files
		return err
	})
	if err != nil {
		return abi.SandboxSaved{}, err
	}
	if _, err := b.keepFile(ctx, name+manifestExt, agent.TypeJSON, bytes.NewReader(encode(m))); err != nil {
		return abi.SandboxSaved{}, err
	}
	return m.told(name), nil
}

// restoreIn brings a checkpoint back, after every file of it was compared with the manifest.
func (b *toolbox) restoreIn(ctx context.Context, box Box, q abi.SandboxRestore) (abi.SandboxSaved, error) {
	m, err := b.verified(ctx, q.File)
	if err != nil {
		return abi.SandboxSaved{}, err
	}
	err = b.tarInto(ctx, box, q.File, driver.DoUnpack, func(s *driver.Stream) any { return driver.ArchiveArgs{Dir: q.Dir, Stream: s} }, nil)
	return m.told(q.File), err
}

// verified returns the manifest of a checkpoint that is whole.
func (b *toolbox) verified(ctx context.Context, name string) (m savedManifest, err error) {
	_, body, err := b.r.store.OpenFile(ctx, b.job.App, b.job.Session, name+manifestExt)
	if err != nil {
		if agent.KindOf(err) == agent.NotFound {
			err = agent.Errorf(agent.NotFound, "there is no checkpoint %s: it has no manifest %s", name, name+manifestExt)
		}
		return m, err
	}
	err = json.NewDecoder(io.LimitReader(body, maxManifest)).Decode(&m)
	_ = body.Close()
	if err != nil {
		return m, agent.Errorf(agent.Invalid, "the manifest %s cannot be read: %s", name+manifestExt, err)
	}
	f, body, err := b.r.store.OpenFile(ctx, b.job.App, b.job.Session, name)
	if err != nil {
		return m, err
	}
	defer body.Close()
	files, err := checkpoint.List(body)
	switch {
	case err != nil:
		return m, err
	case f.Digest != m.Digest || !slices.Equal(files, m.Files):
		return m, &agent.Error{Kind: agent.Invalid, Msg: name + " is not what its manifest says: nothing was restored", Hint: "it was changed after sandbox.checkpoint had made it"}
	}
	return m, nil
}
