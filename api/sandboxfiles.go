package api

import (
	"context"
	"io"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
)

type listSandboxFilesRequest struct {
	ID        agent.SandboxID `path:"id"`
	Dir       string          `query:"dir" doc:"absolute, or within the workspace; the workspace unless given"`
	Recursive bool            `query:"recursive" doc:"true lists what is below, too"`
}

// sandboxFiles is a folder of a sandbox.
type sandboxFiles struct {
	Files []driver.FileInfo `json:"files"`
	More  bool              `json:"more,omitempty" doc:"there are more than were listed"`
}

func (s *Server) listSandboxFiles(ctx context.Context, q listSandboxFilesRequest) (sandboxFiles, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return sandboxFiles{}, err
	}
	if q.Dir == "" {
		q.Dir = "."
	}
	var out driver.FileList
	err = b.Do(ctx, driver.DoList, driver.FileArgs{Path: q.Dir, Recursive: q.Recursive}, &out)
	if out.Files == nil {
		out.Files = []driver.FileInfo{}
	}
	return sandboxFiles(out), err
}

type sandboxFileRequest struct {
	ID   agent.SandboxID `path:"id"`
	Path string          `path:"path" doc:"within the workspace, or absolute when it begins with a slash (%2F)"`
}

func (s *Server) getSandboxFile(ctx context.Context, q sandboxFileRequest) (*stream, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	return s.download(ctx, agent.TypeBytes, func(ctx context.Context, w io.Writer) error {
		return link.Receive(ctx, b, driver.DoRead, func(st *driver.Stream) any { return driver.FileArgs{Path: q.Path, Stream: st} }, nil, copyTo(w))
	})
}

// download streams what write writes. An error before its first byte is the answer.
func (s *Server) download(ctx context.Context, contentType string, write func(context.Context, io.Writer) error) (*stream, error) {
	out, err := s.export(ctx, write)
	if err == nil {
		out.contentType = contentType
	}
	return out, err
}

// copyTo returns what copies all of a reader to w.
func copyTo(w io.Writer) func(io.Reader) error {
	return func(r io.Reader) error {
		_, err := io.Copy(w, r)
		return err
	}
}

type putSandboxFileRequest struct {
	sandboxFileRequest
	Mode int64     `query:"mode" doc:"permissions, as a decimal number; 420 (0644) unless given"`
	Body io.Reader `body:"stream"`
}

func (s *Server) putSandboxFile(ctx context.Context, q putSandboxFileRequest) (driver.FileInfo, error) {
	if q.Mode < 0 || q.Mode > 0o777 {
		return driver.FileInfo{}, agent.Errorf(agent.Invalid, `query parameter "mode" must be from 0 to 511`)
	}
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return driver.FileInfo{}, err
	}
	var out driver.FileInfo
	err = link.Send(ctx, b, driver.DoWrite, func(st *driver.Stream) any { return driver.FileArgs{Path: q.Path, Mode: uint32(q.Mode), Stream: st} }, q.Body, &out)
	return out, err
}

type deleteSandboxFileRequest struct {
	sandboxFileRequest
	Recursive bool `query:"recursive" doc:"true deletes a folder with all that is in it"`
}

func (s *Server) deleteSandboxFile(ctx context.Context, q deleteSandboxFileRequest) (nothing, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, b.Do(ctx, driver.DoDelete, driver.FileArgs{Path: q.Path, Recursive: q.Recursive}, nil)
}

type sandboxArchiveRequest struct {
	ID  agent.SandboxID `path:"id"`
	Dir string          `query:"dir" doc:"absolute, or within the workspace; the workspace unless given"`
}

type getSandboxArchiveRequest struct {
	sandboxArchiveRequest
	Path string `query:"path" doc:"only this file or folder of it"`
}

func (s *Server) getSandboxArchive(ctx context.Context, q getSandboxArchiveRequest) (*stream, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	var paths []string
	if q.Path != "" {
		paths = []string{q.Path}
	}
	return s.download(ctx, typeTar, func(ctx context.Context, w io.Writer) error {
		return link.Receive(ctx, b, driver.DoArchive, func(st *driver.Stream) any { return driver.ArchiveArgs{Dir: q.Dir, Paths: paths, Stream: st} }, nil, copyTo(w))
	})
}

type putSandboxArchiveRequest struct {
	sandboxArchiveRequest
	Body io.Reader `body:"stream"`
}

func (s *Server) putSandboxArchive(ctx context.Context, q putSandboxArchiveRequest) (nothing, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, link.Send(ctx, b, driver.DoUnpack, func(st *driver.Stream) any { return driver.ArchiveArgs{Dir: q.Dir, Stream: st} }, q.Body, nil)
}

type repoInput struct {
	URL   string `json:"url" doc:"https://..., which the environment and the agent's grants have to allow"`
	Ref   string `json:"ref,omitempty" doc:"branch, tag or commit; the default branch unless given"`
	Depth int    `json:"depth,omitempty" doc:"commits of history; all unless given"`
}

type cloneSandboxRepoRequest struct {
	ID   agent.SandboxID `path:"id"`
	Body repoInput       `body:"json"`
}

func (s *Server) cloneSandboxRepo(ctx context.Context, q cloneSandboxRepoRequest) (driver.RepoResult, error) {
	if q.Body.URL == "" {
		return driver.RepoResult{}, agent.Errorf(agent.Invalid, `field "url" is missing: a folder of yours is sent with PUT, as a tar archive`)
	}
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return driver.RepoResult{}, err
	}
	var out driver.RepoResult
	err = b.Do(ctx, driver.DoRepo, driver.RepoArgs{URL: q.Body.URL, Ref: q.Body.Ref, Depth: q.Body.Depth}, &out)
	return out, err
}

type putSandboxRepoRequest struct {
	ID   agent.SandboxID `path:"id"`
	Body io.Reader       `body:"stream"`
}

func (s *Server) putSandboxRepo(ctx context.Context, q putSandboxRepoRequest) (driver.RepoResult, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return driver.RepoResult{}, err
	}
	var out driver.RepoResult
	err = link.Send(ctx, b, driver.DoRepo, func(st *driver.Stream) any { return driver.RepoArgs{Stream: st} }, q.Body, &out)
	return out, err
}

type diffSandboxRequest struct {
	ID   agent.SandboxID `path:"id"`
	Base string          `query:"base" doc:"commit to compare with; that of the repository as it came unless given"`
}

func (s *Server) diffSandbox(ctx context.Context, q diffSandboxRequest) (*stream, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	return s.download(ctx, typePatch, func(ctx context.Context, w io.Writer) error {
		return link.Receive(ctx, b, driver.DoDiff, func(st *driver.Stream) any { return driver.DiffArgs{Base: q.Base, Stream: st} }, nil, copyTo(w))
	})
}

func (s *Server) listSandboxChanges(ctx context.Context, q diffSandboxRequest) (driver.DiffResult, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return driver.DiffResult{}, err
	}
	var out driver.DiffResult
	err = link.Receive(ctx, b, driver.DoDiff, func(st *driver.Stream) any { return driver.DiffArgs{Base: q.Base, Stream: st} }, &out, copyTo(io.Discard))
	if out.Changed == nil {
		out.Changed = []driver.FileStat{}
	}
	return out, err
}
