package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"syscall"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/blob"
	"github.com/skep-dev/skep/store/kv"
)

// MaxFileRead is the most bytes that one ReadFile returns.
const MaxFileRead = 16 << 20

func fileAt(app agent.App, session agent.SessionID, path string) docAt {
	return docAt{Files, app, string(session) + "/" + path}
}

// PutFile stores what body has, up to agent.MaxFile bytes, as the file of a session that is there, and returns it with its size, digest
// and revision. A type that is not given is told from the path and the first bytes. rev is what the file's revision must be, as for
// PutDoc. Putting what is there already changes nothing, whatever rev says, so that a put whose answer was lost can be repeated.
func (s *Store) PutFile(ctx context.Context, f agent.File, rev int64, body io.Reader) (agent.File, error) {
	if err := agent.CheckPath(f.Path); err != nil {
		return agent.File{}, err
	}
	d := fileAt(f.App, f.Session, f.Path)
	if err := d.check(); err != nil {
		return agent.File{}, err
	}
	if _, err := s.Session(ctx, f.App, f.Session); err != nil { // before all of it is read
		return agent.File{}, err
	}
	in := bufio.NewReaderSize(&atMost{ctx, body, agent.MaxFile}, 32<<10)
	if f.Type == "" {
		head, _ := in.Peek(512)
		f.Type = FileType(f.Path, head)
	}
	if _, _, err := mime.ParseMediaType(f.Type); err != nil || len(f.Type) > 200 {
		return agent.File{}, agent.Errorf(agent.Invalid, "%.80q is no media type, such as text/plain or image/png", f.Type)
	}
	var err error
	if f.Digest, f.Size, err = s.putBlobFrom(in); err != nil {
		return agent.File{}, err
	}
	now := stamp(s.now())
	var out agent.File
	err = s.updateOf(ctx, f.App, func(t *tx) error {
		var there agent.File
		r, found, err := lookup(t, d.key(), &there)
		if err != nil {
			return err
		}
		if found && there.Digest == f.Digest && there.Type == f.Type {
			out = there
			out.Rev = r.ord
			return nil
		}
		was, h, err := t.openDoc(d)
		if err == nil {
			err = d.checkRev(was, rev)
		}
		if err != nil {
			return err
		}
		f := f
		f.Created, f.Updated, f.Rev = now, now, 0
		if found {
			f.Created = there.Created
		}
		data, err := plainJSON(f)
		if err != nil {
			return err
		}
		f.Rev, err = t.putDoc(d, was, h, data)
		out = f
		return err
	})
	if err != nil {
		return agent.File{}, err
	}
	return out, nil
}

// atMost is a body that may have so many bytes more.
type atMost struct {
	ctx  context.Context // of the one put that reads it
	r    io.Reader
	left int64
}

func (a *atMost) Read(b []byte) (int, error) {
	if err := a.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := a.r.Read(b[:min(int64(len(b)), a.left+1)])
	if a.left -= int64(n); a.left < 0 {
		return 0, &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitInput, Msg: fmt.Sprintf("a file has more than %d bytes", agent.MaxFile),
			Hint: "put it in several files",
		}
	}
	return n, err
}

// putBlobFrom stores what r has. An error of r that has a kind keeps it.
func (s *Store) putBlobFrom(r io.Reader) (agent.Digest, int64, error) {
	if err := s.room(); err != nil {
		return "", 0, err
	}
	d, n, err := s.blobs.PutFrom(r)
	_, told := errors.AsType[*agent.Error](err)
	switch {
	case err == nil:
		return d, n, nil
	case told, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "", 0, err
	case errors.Is(err, syscall.ENOSPC):
		return "", 0, dbError(fmt.Errorf("%w: %w", kv.ErrFull, err))
	}
	return "", 0, agent.Wrap(agent.Unavailable, err, "the data could not be written to disk")
}

// OpenFile returns a file and its bytes, which the caller closes. They are whole: a blob that is damaged is an error.
func (s *Store) OpenFile(ctx context.Context, app agent.App, session agent.SessionID, path string) (agent.File, io.ReadSeekCloser, error) {
	f, err := s.File(ctx, app, session, path)
	if err != nil {
		return agent.File{}, nil, err
	}
	body, err := s.blobs.Open(f.Digest)
	switch {
	case err == nil:
		return f, body, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, blob.ErrCorrupt):
		return agent.File{}, nil, corrupt(fileAt(app, session, path).key(), "its data: %v", err)
	}
	return agent.File{}, nil, agent.Wrap(agent.Unavailable, err, "the file could not be read from disk")
}

// ReadFile returns a file and up to length of its bytes, at most MaxFileRead, from an offset on: none when that is at its end or past it.
func (s *Store) ReadFile(ctx context.Context, app agent.App, session agent.SessionID, path string, offset, length int64) (agent.File, []byte, error) {
	if offset < 0 || length < 0 || length > MaxFileRead {
		return agent.File{}, nil, agent.Errorf(agent.Invalid, "%d bytes from offset %d on cannot be read: offset and length are from 0 up, and length is at most %d", length, offset, MaxFileRead)
	}
	f, body, err := s.OpenFile(ctx, app, session, path)
	if err != nil {
		return agent.File{}, nil, err
	}
	defer body.Close()
	b := make([]byte, max(0, min(length, f.Size-offset)))
	if _, err = body.Seek(offset, io.SeekStart); err == nil {
		_, err = io.ReadFull(body, b)
	}
	if err != nil {
		return agent.File{}, nil, agent.Wrap(agent.Unavailable, err, "the file could not be read from disk")
	}
	return f, b, nil
}

// File returns what is known of a file.
func (s *Store) File(ctx context.Context, app agent.App, session agent.SessionID, path string) (f agent.File, err error) {
	if err := agent.CheckPath(path); err != nil {
		return f, err
	}
	rev, err := s.Doc(ctx, Files, app, fileAt(app, session, path).name, &f)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		if _, serr := s.Session(ctx, app, session); serr != nil {
			return agent.File{}, serr
		}
		return agent.File{}, &agent.Error{
			Kind: agent.NotFound, Msg: fmt.Sprintf("session %s has no file %.200q", session, path), Hint: "list them with: skep file list " + string(session),
		}
	}
	f.Rev = rev
	return f, err
}

// Files lists the files of a session whose paths begin with prefix, in the order of paths.
func (s *Store) Files(ctx context.Context, app agent.App, session agent.SessionID, prefix string, page agent.Page) (list []agent.File, next string, err error) {
	if _, err := s.Session(ctx, app, session); err != nil {
		return nil, "", err
	}
	list = []agent.File{}
	next, err = s.Docs(ctx, Files, app, string(session)+"/"+prefix, page, func(name string, rev int64, data []byte) error {
		f := agent.File{}
		if err := json.Unmarshal(data, &f); err != nil {
			return corrupt(docAt{Files, app, name}.key(), "%v", err)
		}
		f.Rev = rev
		list = append(list, f)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// DeleteFile deletes a file, with rev as for DeleteDoc.
func (s *Store) DeleteFile(ctx context.Context, app agent.App, session agent.SessionID, path string, rev int64) error {
	if _, err := s.File(ctx, app, session, path); err != nil {
		return err
	}
	return s.DeleteDoc(ctx, Files, app, fileAt(app, session, path).name, rev)
}

// fileTypes is the same on every machine, which the standard library's table is not.
var fileTypes = map[string]string{
	".json": "application/json", ".ndjson": "application/x-ndjson", ".jsonl": "application/x-ndjson", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
	".md": "text/markdown", ".txt": "text/plain", ".log": "text/plain", ".html": "text/html", ".htm": "text/html", ".css": "text/css", ".xml": "application/xml",
	".js": "text/javascript", ".mjs": "text/javascript", ".ts": "application/typescript", ".py": "text/x-python", ".sh": "text/x-shellscript",
	".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml", ".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg",
	".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".pdf": "application/pdf", ".zip": "application/zip", ".wasm": "application/wasm",
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".mp4": "video/mp4",
}

// FileType tells the media type of a file by its name, else by its first bytes, of which it looks at 512.
func FileType(name string, head []byte) string {
	if t := fileTypes[strings.ToLower(path.Ext(name))]; t != "" {
		return t
	}
	return http.DetectContentType(head)
}
