package client

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/skep-dev/skep/agent"
)

func filePath(session agent.SessionID, file string) string {
	return path("sessions", string(session), "files", file)
}

// Files lists the files of a session whose paths begin with prefix, in the order of paths.
func (c *Client) Files(ctx context.Context, session agent.SessionID, prefix string, p agent.Page) (List[agent.File], error) {
	q := pageQuery(p)
	q["prefix"] = prefix
	return get[List[agent.File]](ctx, c, path("sessions", string(session), "files")+q.encode())
}

// FileBody is the bytes of a file as they arrive, which the caller closes.
type FileBody struct {
	io.ReadCloser
	Type string
	Size int64 // of what is to come
}

// File opens a file of a session. With an offset, or a length above 0, that part of it.
func (c *Client) File(ctx context.Context, session agent.SessionID, path string, offset, length int64) (*FileBody, error) {
	h := header{}
	switch {
	case length > 0:
		h["Range"] = "bytes=" + strconv.FormatInt(offset, 10) + "-" + strconv.FormatInt(offset+length-1, 10)
	case offset > 0:
		h["Range"] = "bytes=" + strconv.FormatInt(offset, 10) + "-"
	}
	res, err := c.send(ctx, http.MethodGet, filePath(session, path), h, nil)
	if err != nil {
		return nil, err
	}
	return &FileBody{res.Body, res.Header.Get("Content-Type"), res.ContentLength}, nil
}

// PutFile stores size bytes of body as a file of a session. mediaType may be empty. The file must have the revision that ifRev points
// to, if that is not nil; 0 means that it must not be there.
func (c *Client) PutFile(ctx context.Context, session agent.SessionID, path, mediaType string, ifRev *int64, body io.ReadSeeker, size int64) (f agent.File, err error) {
	h := header{}
	if mediaType != "" {
		h["Content-Type"] = mediaType
	}
	res, err := c.sendBody(ctx, http.MethodPut, filePath(session, path)+revQuery(ifRev), h, body, size)
	if err != nil {
		return f, err
	}
	return f, c.decode(ctx, res, &f)
}

// DeleteFile deletes a file of a session, with ifRev as for PutFile.
func (c *Client) DeleteFile(ctx context.Context, session agent.SessionID, path string, ifRev *int64) error {
	return c.do(ctx, http.MethodDelete, filePath(session, path)+revQuery(ifRev), nil, nil, nil)
}

func revQuery(v *int64) string {
	if v == nil {
		return ""
	}
	return query{"if_rev": strconv.FormatInt(*v, 10)}.encode()
}
