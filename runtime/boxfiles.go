package runtime

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/store"
)

// attachments is the folder of the workspace that has the files of the session which a task names.
const attachments = ".attachments"

// maxAttached is how many there may be.
const maxAttached = 100

func (b *toolbox) readIn(ctx context.Context, box Box, q abi.SandboxRead) (abi.SandboxPart, error) {
	if q.Offset < 0 || q.Length < 0 {
		return abi.SandboxPart{}, agent.Errorf(agent.Invalid, "offset and length are numbers from 0 up")
	}
	most := int64(abi.MaxSandboxPart)
	if q.Length > 0 {
		most = min(most, q.Length)
	}
	var body []byte
	err := link.Receive(ctx, box, driver.DoRead, func(s *driver.Stream) any {
		return driver.FileArgs{Path: q.Path, Offset: q.Offset, Length: most + 1, Stream: s}
	}, nil, func(r io.Reader) (err error) {
		body, err = io.ReadAll(io.LimitReader(r, most+1))
		return err
	})
	if err != nil {
		return abi.SandboxPart{}, err
	}
	more := int64(len(body)) > most
	return abi.SandboxPart{Body: body[:min(int64(len(body)), most)], More: more}, nil
}

func (b *toolbox) writeIn(ctx context.Context, box Box, q abi.SandboxWrite) (abi.SandboxFile, error) {
	if len(q.Body) > abi.MaxSandboxPart {
		return abi.SandboxFile{}, &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitInput, Msg: fmt.Sprintf("the file has %d bytes, more than %d", len(q.Body), abi.MaxSandboxPart),
			Hint: "keep it among the files of the session, and attach it",
		}
	}
	var out driver.FileInfo
	err := link.Send(ctx, box, driver.DoWrite, func(s *driver.Stream) any {
		return driver.FileArgs{Path: q.Path, Mode: q.Mode, Stream: s}
	}, bytes.NewReader(q.Body), &out)
	return sandboxFile(out), err
}

func sandboxFile(f driver.FileInfo) abi.SandboxFile {
	return abi.SandboxFile{Path: f.Path, Type: f.Type, Size: f.Size, Mode: f.Mode, Modified: f.Modified.UnixMilli(), Target: f.Target}
}

func (b *toolbox) listIn(ctx context.Context, box Box, q abi.SandboxPath) (abi.SandboxFiles, error) {
	var got driver.FileList
	err := box.Do(ctx, driver.DoList, driver.FileArgs{Path: q.Path, Recursive: q.Recursive}, &got)
	out := abi.SandboxFiles{Files: []abi.SandboxFile{}, More: got.More}
	for _, f := range got.Files {
		out.Files = append(out.Files, sandboxFile(f))
	}
	return out, err
}

func (b *toolbox) deleteIn(ctx context.Context, box Box, q abi.SandboxPath) (grant.None, error) {
	if q.Path == "" {
		return grant.None{}, agent.Errorf(agent.Invalid, "the path is missing")
	}
	return grant.None{}, notThere(box.Do(ctx, driver.DoDelete, driver.FileArgs{Path: q.Path, Recursive: q.Recursive}, nil))
}

// attachIn puts files of the session into the workspace, where nobody is to change them.
func (b *toolbox) attachIn(ctx context.Context, box Box, q abi.SandboxAttach) (abi.SandboxAttached, error) {
	if len(q.Files) > maxAttached {
		return abi.SandboxAttached{}, agent.Errorf(agent.Invalid, "%d files are attached, more than %d", len(q.Files), maxAttached)
	}
	out := abi.SandboxAttached{Paths: []string{}}
	for _, name := range q.Files {
		f, body, err := b.r.store.OpenFile(ctx, b.job.App, b.job.Session, name)
		if err != nil {
			return abi.SandboxAttached{}, err
		}
		at := path.Join(attachments, name)
		err = link.Send(ctx, box, driver.DoWrite, func(s *driver.Stream) any { return driver.FileArgs{Path: at, Mode: 0o444, Stream: s} }, body, nil)
		_ = body.Close()
		if err != nil {
			return abi.SandboxAttached{}, err
		}
		out.Paths = append(out.Paths, at)
		if strings.HasPrefix(f.Type, "image/") {
			out.Images = append(out.Images, at)
		}
	}
	if len(q.Files) == 0 {
		return out, nil
	}
	// They are no part of the work.
	return out, box.Do(ctx, driver.DoExec, driver.Exec{ID: b.named(ctx), Command: []string{excludeAttachments}}, nil)
}

// excludeAttachments is a line for sh.
const excludeAttachments = `if [ -d .git ] && ! grep -qxF "/` + attachments + `/" .git/info/exclude 2>/dev/null; then mkdir -p .git/info && echo "/` + attachments +
	`/" >> .git/info/exclude; fi`

// repoIn brings what to work on into the workspace. Without a URL and a file that is what is there.
func (b *toolbox) repoIn(ctx context.Context, box Box, q abi.SandboxRepo) (abi.SandboxBase, error) {
	in := driver.RepoArgs{URL: q.URL, Ref: q.Ref, Depth: q.Depth}
	var out driver.RepoResult
	var err error
	switch {
	case q.URL != "" && q.File != "":
		return abi.SandboxBase{}, agent.Errorf(agent.Invalid, "a repo is brought in from a url or from a file, not both")
	case q.URL != "":
		err = box.Do(ctx, driver.DoRepo, in, &out)
	case q.File == "":
		nothing := make([]byte, 1024) // the end of a tar
		err = link.Send(ctx, box, driver.DoRepo, func(s *driver.Stream) any { return driver.RepoArgs{Stream: s} }, bytes.NewReader(nothing), &out)
	default:
		err = b.tarInto(ctx, box, q.File, driver.DoRepo, func(s *driver.Stream) any {
			in.Stream = s
			return in
		}, &out)
	}
	return abi.SandboxBase{Commit: out.Commit, Branch: out.Branch, Files: out.Files}, err
}

// tarInto carries out a command that takes a tar, which is a file of the session. One that is compressed is unpacked on the way.
func (b *toolbox) tarInto(ctx context.Context, box Box, file, name string, args func(*driver.Stream) any, out any) error {
	_, body, err := b.r.store.OpenFile(ctx, b.job.App, b.job.Session, file)
	if err != nil {
		return err
	}
	defer body.Close()
	in := bufio.NewReaderSize(body, 64<<10)
	var tar io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if tar, err = gzip.NewReader(in); err != nil {
			return agent.Errorf(agent.Invalid, "%s is no tar with gzip: %s", file, err)
		}
	}
	return link.Send(ctx, box, name, args, tar, out)
}

// diffIn keeps what was changed among the files of the session, and what the run has used until then.
func (b *toolbox) diffIn(ctx context.Context, box Box, q abi.SandboxDiff) (abi.SandboxChanges, error) {
	in := driver.DiffArgs{Base: q.Base, Commit: q.Commit, Branch: q.Branch, Author: q.Author}
	name, media := b.artifact(ctx, ".patch"), "text/x-diff; charset=utf-8"
	if q.Commit != "" {
		name, media = b.artifact(ctx, ".bundle"), "application/x-git-bundle"
	}
	var out driver.DiffResult
	var kept agent.File
	err := link.Receive(ctx, box, driver.DoDiff, func(s *driver.Stream) any {
		in.Stream = s
		return in
	}, &out, func(r io.Reader) (err error) {
		if q.Commit == "" {
			r = b.job.secrets.Scrubber().Reader(r)
		}
		kept, err = b.keepFile(ctx, name, media, r)
		return err
	})
	if err != nil {
		return abi.SandboxChanges{}, err
	}
	got := abi.SandboxChanges{Base: out.Base, Commit: out.Commit, Bytes: kept.Size, Files: out.Files, Changed: []abi.SandboxChange{}}
	if got.Usage, err = b.keepUsage(ctx, box.Record()); err != nil {
		return abi.SandboxChanges{}, err
	}
	for _, c := range out.Changed {
		got.Changed = append(got.Changed, abi.SandboxChange{Path: c.Path, Op: c.Op, From: c.From, Added: c.Added, Removed: c.Removed})
	}
	switch {
	case kept.Size == 0:
		return got, notThere(b.r.store.DeleteFile(ctx, b.job.App, b.job.Session, name, store.AnyRev))
	case q.Commit != "":
		got.Bundle = name
	default:
		got.Patch = name
	}
	got.List, err = b.keepJSON(ctx, b.artifact(ctx, ".json"), abi.SandboxList{Base: got.Base, Commit: got.Commit, Files: got.Files, Changed: got.Changed})
	return got, err
}

// keepJSON keeps v for people to read, and returns its path.
func (b *toolbox) keepJSON(ctx context.Context, name string, v any) (string, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", err
	}
	_, err = b.keepFile(ctx, name, agent.TypeJSON, bytes.NewReader(body))
	return name, err
}

// artifact is where a call's result is kept.
func (b *toolbox) artifact(ctx context.Context, ext string) string {
	return b.artifacts() + strings.TrimPrefix(b.named(ctx), string(b.job.Run)+"-") + ext
}

// artifacts is the folder of what the run leaves.
func (b *toolbox) artifacts() string { return "artifacts/" + string(b.job.Run) + "/" }

func (b *toolbox) keepFile(ctx context.Context, name, mediaType string, body io.Reader) (agent.File, error) {
	return b.r.store.PutFile(ctx, agent.File{App: b.job.App, Session: b.job.Session, Path: name, Type: mediaType, Run: b.job.Run}, store.AnyRev, body)
}
