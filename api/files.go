package api

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"reflect"
	"strconv"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

type listFilesRequest struct {
	ID agent.SessionID `path:"id"`
	pageQuery
	Prefix string `query:"prefix" doc:"what the paths begin with"`
}

func (s *Server) listFiles(ctx context.Context, q listFilesRequest) (list[agent.File], error) {
	return listOf(s.st.Files(ctx, appOf(ctx), q.ID, q.Prefix, q.page()))
}

type fileRequest struct {
	ID   agent.SessionID `path:"id"`
	Path string          `path:"path" doc:"slashes may stand as they are"`
}

// getFile answers with the bytes as they are, or those that a Range header asks for.
func (s *Server) getFile(ctx context.Context, q fileRequest) (*content, error) {
	f, body, err := s.st.OpenFile(ctx, appOf(ctx), q.ID, q.Path)
	if err != nil {
		return nil, err
	}
	return &content{contentType: f.Type, name: path.Base(f.Path), etag: etagOf(f.Digest), size: f.Size, body: body}, nil
}

func etagOf(d agent.Digest) string { return strconv.Quote(d.Hex()) }

func attachment(name string) string {
	return mime.FormatMediaType("attachment", map[string]string{"filename": name})
}

// ifRev makes a change depend on the revision of what is changed.
type ifRev struct {
	If string `query:"if_rev" doc:"the revision that the file must have, 0 for one that must not be there"`
}

func (q ifRev) rev() (int64, error) {
	if q.If == "" {
		return store.AnyRev, nil
	}
	n, err := strconv.ParseInt(q.If, 10, 64)
	if err != nil || n < 0 {
		return 0, agent.Errorf(agent.Invalid, `query parameter "if_rev" must be a whole number from 0 up, not %.80q`, q.If)
	}
	return n, nil
}

type putFileRequest struct {
	fileRequest
	ifRev
	Type string    `header:"Content-Type" doc:"of the file; told from its path and first bytes unless given"`
	Body io.Reader `body:"stream"`
}

// formType is what curl says of bytes of which it was told nothing.
const formType = "application/x-www-form-urlencoded"

func (s *Server) putFile(ctx context.Context, q putFileRequest) (agent.File, error) {
	rev, err := q.rev()
	if err != nil {
		return agent.File{}, err
	}
	if q.Type == formType {
		q.Type = ""
	}
	f, err := s.st.PutFile(ctx, agent.File{App: appOf(ctx), Session: q.ID, Path: q.Path, Type: q.Type}, rev, q.Body)
	if err == nil {
		err = s.audit(ctx, "file.put", string(q.ID), fmt.Sprintf("%q, %d bytes, %s", f.Path, f.Size, f.Digest))
	}
	return f, err
}

type deleteFileRequest struct {
	fileRequest
	ifRev
}

func (s *Server) deleteFile(ctx context.Context, q deleteFileRequest) (nothing, error) {
	rev, err := q.rev()
	if err != nil {
		return nothing{}, err
	}
	if err := s.st.DeleteFile(ctx, appOf(ctx), q.ID, q.Path, rev); err != nil {
		return nothing{}, err
	}
	return nothing{}, s.audit(ctx, "file.delete", string(q.ID), fmt.Sprintf("%q", q.Path))
}

func fileResults() map[int]reflect.Type {
	return map[int]reflect.Type{http.StatusOK: nil, http.StatusPartialContent: nil, http.StatusNotModified: nil}
}
