// Package stdio is what backends share whose CLI speaks lines of JSON: the lines, the requests that wait for an answer, the state of a session, and the end of
// its process. Those of JSON-RPC have package jsonrpc for the requests, and package turn on top of the session.
package stdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/driver"
)

// MaxLine bounds a line that a CLI writes; results of tools are in them, whole. Of a longer one only the beginning is kept.
const MaxLine = 32 << 20

// headLine is how much of a line is kept that is too long.
const headLine = 4 << 10

// Lines calls each with each line of r that is not empty, without its end. It returns when r has ended. whole is false of a line that was longer than most
// bytes, of which only the beginning is there. The line is each's own.
func Lines(r io.Reader, most int, each func(line []byte, whole bool)) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	whole := true
	for {
		piece, err := br.ReadSlice('\n')
		if whole {
			line = append(line, piece...)
			if len(line) > most+2 {
				whole, line = false, line[:min(len(line), headLine)]
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		text := bytes.TrimRight(line, "\r\n")
		if len(text) > most {
			whole, text = false, text[:min(len(text), headLine)]
		}
		if len(bytes.TrimSpace(text)) > 0 {
			each(text, whole)
		}
		line, whole = nil, true
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Writer writes lines of JSON. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Send writes v as one line. A CLI that does not read holds up nobody for longer than ctx; the line may be written later then.
func (w *Writer) Send(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() { // it ends with the CLI at the latest
		w.mu.Lock()
		defer w.mu.Unlock()
		_, err := w.w.Write(append(b, '\n'))
		written <- err
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replyWait is how long the reader of a CLI waits until the CLI takes an answer that nobody has to give.
const replyWait = 10 * time.Second

// Reply is Send for the reader of a CLI.
func (w *Writer) Reply(v any) error {
	ctx, cancel := context.WithTimeout(context.Background(), replyWait)
	defer cancel()
	return w.Send(ctx, v)
}

// Within returns path as it is told: within dir, with slashes, where it is there, else absolute. A path that is not absolute is one in dir.
func Within(dir, path string) string {
	if path == "" {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	in, err := filepath.Rel(dir, path)
	if err != nil || in == ".." || strings.HasPrefix(in, "../") {
		return filepath.Clean(path)
	}
	return filepath.ToSlash(in)
}

// Unparsed is the data of what a backend does not know.
func Unparsed(line []byte) driver.UnparsedData {
	return driver.UnparsedData{Raw: driver.CutText(strings.ToValidUTF8(string(line), "\uFFFD"), headLine)}
}
