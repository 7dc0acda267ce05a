package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/runtime"
)

// joinForm turns a multipart/form-data upload of several files into a zip package with the same files. One file
// alone stays that file. Other uploads pass as they are.
func joinForm(up runtime.Upload) (runtime.Upload, error) {
	t, params, err := mime.ParseMediaType(up.Type)
	if err != nil || t != "multipart/form-data" {
		return up, nil
	}
	bad := func(err error) error {
		return &agent.Error{
			Kind: agent.Invalid, Err: err, Msg: "the body is not valid multipart/form-data",
			Hint: "send each file as a part with a filename",
		}
	}
	files := map[string][]byte{}
	name, contentType := "", ""
	for r := multipart.NewReader(bytes.NewReader(up.Body), params["boundary"]); ; {
		part, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return up, bad(err)
		}
		_, disposition, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		name, contentType = disposition["filename"], part.Header.Get("Content-Type") // part.FileName would drop the directory
		if name == "" {
			return up, bad(errors.New("part without a filename"))
		}
		if _, twice := files[name]; twice {
			return up, agent.Errorf(agent.Invalid, "the upload has two files called %.80q", name)
		}
		b, err := io.ReadAll(part)
		if err != nil {
			return up, bad(err)
		}
		files[name] = b
	}
	switch len(files) {
	case 0:
		return up, bad(errors.New("no parts"))
	case 1:
		if up.Filename == "" {
			up.Filename = name
		}
		up.Type, up.Body = contentType, files[name]
		return up, nil
	}
	up.Filename, up.Type = "package.zip", "application/zip"
	up.Body, err = plugins.Pack(files)
	return up, err
}

// uploadLine is one line of an upload's progress. The last one has the plugin, what a check found, or the error.
type uploadLine struct {
	Stage  string   `json:"stage,omitempty"`
	Done   int64    `json:"done,omitempty"`
	Total  int64    `json:"total,omitempty"`
	Result any      `json:"result,omitempty"`
	Error  *problem `json:"error,omitempty"`
}

// progress does an upload while it streams how far that is. When the client goes away the upload is given up.
func (s *Server) progress(ctx context.Context, do func(context.Context, func(host.Progress)) (any, error)) *stream {
	id := requestOf(ctx).id
	ctx, cancel := context.WithCancel(ctx)
	lines := make(chan uploadLine, 16)
	done := make(chan uploadLine, 1)
	s.sockets.Go(func() {
		out, err := guarded(func() (any, error) {
			return do(ctx, func(p host.Progress) {
				select {
				case lines <- uploadLine{Stage: p.Stage, Done: p.Done, Total: p.Total}:
				default: // the reader is slow: it does without
				}
			})
		})
		if err != nil {
			p := problemOf(err, id)
			if p.Kind == agent.Internal {
				s.o.Log.Error("api: upload failed", "request", id, "err", err)
			}
			done <- uploadLine{Error: &p}
			return
		}
		if w, ok := out.(withStatus); ok {
			out = w.value
		}
		if m, ok := out.(interface{ result() (any, bool) }); ok {
			out, _ = m.result()
		}
		done <- uploadLine{Result: out}
	})
	ended := false
	return &stream{
		contentType: typeNDJSON, beat: []byte("\n"), finish: true, close: cancel,
		next: func(ctx context.Context) ([]byte, error) {
			if ended {
				return nil, io.EOF
			}
			select {
			case line := <-lines:
				return appendLine(nil, line)
			case <-ctx.Done():
				return nil, ctx.Err()
			case last := <-done:
				ended = true
				var b []byte
				for len(lines) > 0 { // told before the end was
					var err error
					if b, err = appendLine(b, <-lines); err != nil {
						return nil, err
					}
				}
				return appendLine(b, last)
			}
		},
	}
}

func appendLine(b []byte, line uploadLine) ([]byte, error) {
	j, err := json.Marshal(line)
	return append(append(b, j...), '\n'), err
}
