package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"path"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/store"
)

// maxValue is how many bytes a tool's result may have that code gets as a value. A larger one is an artifact.
const maxValue = 1 << 20

// maxFilePart is how many bytes one reading of a file returns.
const maxFilePart = 4 << 20

// addFiles gives a door the files of the session.
func (b *toolbox) addFiles(handlers map[string]grant.Handler) {
	handlers[abi.CallFileRead] = b.readFile
	handlers[abi.CallFilePut] = b.putFile
	handlers[abi.CallFileList] = b.listFiles
	handlers[abi.CallInstructions] = b.instructions
}

func (b *toolbox) session() error {
	if b.job.Session == "" {
		return &agent.Error{Kind: agent.Denied, Msg: "files belong to a session, and this call has none", Hint: "start a run: skep run AGENT FUNCTION"}
	}
	return nil
}

func (b *toolbox) readFile(ctx context.Context, in []byte) ([]byte, error) {
	var q abi.FileRead
	if err := grant.Decode(in, &q); err != nil {
		return nil, err
	}
	if err := b.session(); err != nil {
		return nil, err
	}
	if q.Offset < 0 || q.Length < 0 || q.Length > maxFilePart {
		return nil, agent.Errorf(agent.Invalid, "a part of a file begins at 0 or later and has up to %d bytes", maxFilePart)
	}
	if q.Length == 0 {
		q.Length = maxFilePart
	}
	f, body, err := b.r.store.ReadFile(ctx, b.job.App, b.job.Session, q.Path, q.Offset, q.Length)
	if err != nil {
		return nil, err
	}
	return encode(abi.FilePart{Body: body, FileInfo: fileInfo(f)}), nil
}

func fileInfo(f agent.File) abi.FileInfo {
	return abi.FileInfo{Path: f.Path, Type: f.Type, Size: f.Size}
}

func (b *toolbox) putFile(ctx context.Context, in []byte) ([]byte, error) {
	var q abi.FilePut
	if err := grant.Decode(in, &q); err != nil {
		return nil, err
	}
	if err := b.session(); err != nil {
		return nil, err
	}
	f, err := b.put(ctx, q.Path, q.Type, q.Body)
	if err != nil {
		return nil, err
	}
	return encode(fileInfo(f)), nil
}

func (b *toolbox) put(ctx context.Context, name, mediaType string, body []byte) (agent.File, error) {
	body = b.job.secrets.Bytes(body)
	return b.r.store.PutFile(ctx, agent.File{App: b.job.App, Session: b.job.Session, Path: name, Type: mediaType, Run: b.job.Run}, store.AnyRev, bytes.NewReader(body))
}

func (b *toolbox) listFiles(ctx context.Context, in []byte) ([]byte, error) {
	var q abi.FileList
	if len(in) > 0 {
		if err := grant.Decode(in, &q); err != nil {
			return nil, err
		}
	}
	if err := b.session(); err != nil {
		return nil, err
	}
	if q.Limit < 0 || q.Limit > agent.MaxPage {
		return nil, agent.Errorf(agent.Invalid, "limit is %d; it must be between 1 and %d", q.Limit, agent.MaxPage)
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	list, next, err := b.r.store.Files(ctx, b.job.App, b.job.Session, q.Prefix, agent.Page{After: q.After, Limit: q.Limit})
	if err != nil {
		return nil, err
	}
	out := abi.Files{Files: make([]abi.FileInfo, len(list)), After: next}
	for i, f := range list {
		out.Files[i] = fileInfo(f)
	}
	return encode(out), nil
}

// shape makes a tool's result a value: what is no JSON, or too large, is kept as an artifact, whose handle is in its place.
func (b *toolbox) shape(ctx context.Context, n uint64, res agent.ToolResult) (json.RawMessage, error) {
	value := b.job.secrets.Bytes(res.Value)
	for i, blob := range res.Blobs {
		handle, err := b.keep(ctx, fmt.Sprintf("%d-%d", n, i+1), blob)
		if err != nil {
			return nil, err
		}
		// Within a string of JSON its quotes would be escaped, so this is the place that is held, and no text that looks like it.
		value = bytes.ReplaceAll(value, fmt.Appendf(nil, `{"$blob":%d}`, i), encode(handle))
	}
	if len(value) <= maxValue {
		return value, nil
	}
	whole := agent.ToolBlob{Type: "application/json", Body: value}
	var text string
	if res.Text && json.Unmarshal(value, &text) == nil {
		whole = agent.ToolBlob{Type: "text/plain; charset=utf-8", Body: []byte(text)}
	}
	handle, err := b.keep(ctx, fmt.Sprint(n), whole)
	return encode(handle), err
}

// keep makes an artifact, or without a session the value that stands for a small one.
func (b *toolbox) keep(ctx context.Context, name string, blob agent.ToolBlob) (any, error) {
	if b.job.Session == "" {
		if len(blob.Body) > maxValue {
			return nil, &agent.Error{
				Kind: agent.Exhausted, Limit: agent.LimitInput, Msg: fmt.Sprintf("the tool returned %d bytes, more than %d that fit in a value", len(blob.Body), maxValue),
				Hint: "call it from a run, where it becomes an artifact",
			}
		}
		return map[string]any{"base64": blob.Body, "type": blob.Type, "size": len(blob.Body)}, nil
	}
	f, err := b.put(ctx, "artifacts/"+string(b.job.Run)+"/"+name+extension(blob), blob.Type, blob.Body)
	return agent.Artifact{Path: f.Path, Type: f.Type, Size: f.Size}, err
}

// extension is how the file's name of an artifact ends, by which people know what it is.
func extension(blob agent.ToolBlob) string {
	if ext := path.Ext(blob.Name); len(ext) > 1 && len(ext) < 8 && agent.CheckPath("a"+ext) == nil {
		return ext
	}
	media, _, _ := mime.ParseMediaType(blob.Type)
	for prefix, ext := range map[string]string{
		"application/json": ".json", "text/plain": ".txt", "image/png": ".png", "image/jpeg": ".jpg", "audio/wav": ".wav", "audio/mpeg": ".mp3", "text/html": ".html",
	} {
		if strings.EqualFold(media, prefix) {
			return ext
		}
	}
	return ".bin"
}
