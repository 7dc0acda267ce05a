package builtin

import (
	"context"
	"encoding/base64"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// Bounds of the tools of files.
const (
	maxSearched = 64 << 20 // bytes that one search reads
	maxFound    = 1000     // lines
	maxLine     = 400      // bytes of one that is shown
	maxDiffed   = 4 << 20  // bytes of a file that is compared
)

const fileInfo = `{"type":"object","properties":{"path":{"type":"string"},"type":{"type":"string"},"size":{"type":"integer"}},"required":["path","type","size"]}`

func (o Options) fileTools() []tool {
	return []tool{
		{
			name: "list", title: "List files", effect: agent.Read, again: true, call: typed(listFiles),
			description: "List the files of the session, in the order of their paths: attachments that came in, artifacts and what was written.",
			input:       `{"type":"object","properties":{"prefix":{"type":"string","description":"only paths that begin so"},"after":{"type":"string","description":"cursor of the page before"},"limit":{"type":"integer","minimum":1,"maximum":1000}},"additionalProperties":false}`,
			output:      `{"type":"object","properties":{"files":{"type":"array","items":` + fileInfo + `},"after":{"type":"string","description":"cursor of the next page"}},"required":["files"]}`,
		},
		{
			name: "read", title: "Read a file", effect: agent.Read, again: true, call: typed(readFile),
			description: "Read a file of the session, or a part of up to 4 MiB of it: as text where it is, else as base64.",
			input:       `{"type":"object","properties":{"path":{"type":"string"},"offset":{"type":"integer","minimum":0},"length":{"type":"integer","minimum":1,"maximum":4194304},"base64":{"type":"boolean","description":"as base64, even where it is text"}},"required":["path"],"additionalProperties":false}`,
			output:      `{"type":"object","properties":{"path":{"type":"string"},"type":{"type":"string"},"size":{"type":"integer","description":"of the whole file"},"text":{"type":"string"},"base64":{"type":"string"},"next":{"type":"integer","description":"offset of the part that follows, when there is more"}},"required":["path","type","size"]}`,
		},
		{
			name: "write", title: "Write a file", effect: agent.Modify, again: true, call: typed(writeFile), output: fileInfo,
			description: "Write a file of the session, whole. One that is there already is replaced.",
			input:       `{"type":"object","properties":{"path":{"type":"string","description":"NAME or FOLDER/NAME"},"text":{"type":"string"},"base64":{"type":"string"},"type":{"type":"string","description":"media type"}},"required":["path"],"additionalProperties":false}`,
		},
		{
			name: "delete", title: "Delete a file", effect: agent.ModifyExecute, again: true, call: typed(o.deleteFile),
			description: "Delete a file of the session for good.",
			input:       `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`,
			output:      `{"type":"object","properties":{"deleted":{"type":"string"}},"required":["deleted"]}`,
		},
		{
			name: "search", title: "Search in files", effect: agent.Read, again: true, call: typed(searchFiles),
			description: "Find lines in the text files of the session that hold a text, or match a regular expression (RE2).",
			input:       `{"type":"object","properties":{"query":{"type":"string","minLength":1},"regexp":{"type":"boolean"},"ignore_case":{"type":"boolean"},"prefix":{"type":"string","description":"only files whose paths begin so"},"limit":{"type":"integer","minimum":1,"maximum":1000}},"required":["query"],"additionalProperties":false}`,
			output:      `{"type":"object","properties":{"matches":{"type":"array","items":{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer"},"text":{"type":"string"}},"required":["path","line","text"]}},"files":{"type":"integer","description":"that were looked at"},"more":{"type":"boolean","description":"whether not all was looked at"}},"required":["matches","files"]}`,
		},
		{
			name: "diff", title: "Compare files", effect: agent.Read, again: true, call: typed(diffFiles),
			description: "Compare a text file of the session with another, or with a text, as a unified diff.",
			input:       `{"type":"object","properties":{"path":{"type":"string"},"with":{"type":"string","description":"path of the other file"},"text":{"type":"string","description":"in place of the other file"}},"required":["path"],"additionalProperties":false}`,
			output:      `{"type":"object","properties":{"diff":{"type":"string","description":"empty when they are the same"},"added":{"type":"integer"},"removed":{"type":"integer"}},"required":["diff","added","removed"]}`,
		},
	}
}

func listFiles(ctx context.Context, o *tools.CallOptions, a abi.FileList) (agent.ToolResult, error) {
	var out abi.Files
	if err := door(ctx, o, abi.CallFileList, a, &out); err != nil {
		return agent.ToolResult{}, err
	}
	if out.Files == nil {
		out.Files = []abi.FileInfo{}
	}
	return value(out)
}

type readArgs struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	Base64 bool   `json:"base64"`
}

type fileContent struct {
	abi.FileInfo
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
	Next   int64   `json:"next,omitempty"`
}

func readFile(ctx context.Context, o *tools.CallOptions, a readArgs) (agent.ToolResult, error) {
	var part abi.FilePart
	if err := door(ctx, o, abi.CallFileRead, abi.FileRead{Path: a.Path, Offset: a.Offset, Length: a.Length}, &part); err != nil {
		return agent.ToolResult{}, err
	}
	out := fileContent{FileInfo: part.FileInfo}
	body := part.Body
	more := a.Offset+int64(len(body)) < part.Size
	if more && !a.Base64 { // no rune is cut in two
		for cut := 0; cut < utf8.UTFMax && len(body) > cut; cut++ {
			if utf8.Valid(body[:len(body)-cut]) {
				body = body[:len(body)-cut]
				break
			}
		}
	}
	if text := string(body); !a.Base64 && utf8.ValidString(text) && !strings.Contains(text, "\x00") {
		out.Text = &text
	} else {
		body = part.Body
		text = base64.StdEncoding.EncodeToString(body)
		out.Base64 = &text
	}
	if end := a.Offset + int64(len(body)); more && len(body) > 0 {
		out.Next = end
	}
	return value(out)
}

type writeArgs struct {
	Path   string  `json:"path"`
	Text   *string `json:"text"`
	Base64 *string `json:"base64"`
	Type   string  `json:"type"`
}

func writeFile(ctx context.Context, o *tools.CallOptions, a writeArgs) (agent.ToolResult, error) {
	put := abi.FilePut{Path: a.Path, Type: a.Type}
	switch {
	case (a.Text == nil) == (a.Base64 == nil):
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Invalid, "give what to write as text or as base64"))
	case a.Text != nil:
		put.Body = []byte(*a.Text)
	default:
		b, err := base64.StdEncoding.DecodeString(*a.Base64)
		if err != nil {
			return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Invalid, "base64 is not valid: %s", err))
		}
		put.Body = b
	}
	var info abi.FileInfo
	if err := door(ctx, o, abi.CallFilePut, put, &info); err != nil {
		return agent.ToolResult{}, err
	}
	return value(info)
}

type pathArgs struct {
	Path string `json:"path"`
}

func (o Options) deleteFile(ctx context.Context, call *tools.CallOptions, a pathArgs) (agent.ToolResult, error) {
	if call.For.Session == "" || o.DeleteFile == nil {
		return agent.ToolResult{}, tools.MarkUnsent(&agent.Error{
			Kind: agent.Denied, Msg: "files belong to a session, and this call has none", Hint: "start a run: skep run AGENT FUNCTION",
		})
	}
	if err := agent.CheckPath(a.Path); err != nil {
		return agent.ToolResult{}, tools.MarkUnsent(err)
	}
	if err := o.DeleteFile(ctx, call.For.App, call.For.Session, a.Path); err != nil {
		return agent.ToolResult{}, err
	}
	return value(map[string]string{"deleted": a.Path})
}

// whole reads a text file, up to most bytes. ok is false when it is no text.
func whole(ctx context.Context, o *tools.CallOptions, path string, most int64) (text string, ok bool, err error) {
	var b []byte
	for {
		var part abi.FilePart
		if err := door(ctx, o, abi.CallFileRead, abi.FileRead{Path: path, Offset: int64(len(b))}, &part); err != nil {
			return "", false, err
		}
		if part.Size > most {
			return "", false, agent.Exceeded(agent.LimitInput, "%s has %d bytes, more than %d", path, part.Size, most)
		}
		if b = append(b, part.Body...); len(part.Body) == 0 || int64(len(b)) >= part.Size {
			break
		}
	}
	text = string(b)
	return text, utf8.ValidString(text) && !strings.Contains(text, "\x00"), nil
}

type searchArgs struct {
	Query      string `json:"query"`
	Regexp     bool   `json:"regexp"`
	IgnoreCase bool   `json:"ignore_case"`
	Prefix     string `json:"prefix"`
	Limit      int    `json:"limit"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

type found struct {
	Matches []match `json:"matches"`
	Files   int     `json:"files"`
	More    bool    `json:"more,omitempty"`
}

func searchFiles(ctx context.Context, o *tools.CallOptions, a searchArgs) (agent.ToolResult, error) {
	pattern := a.Query
	if !a.Regexp {
		pattern = regexp.QuoteMeta(pattern)
	}
	if a.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil || a.Query == "" || len(a.Query) > 1000 {
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Invalid, "query is no text or regular expression of 1 to 1000 bytes: %v", err))
	}
	if a.Limit <= 0 || a.Limit > maxFound {
		a.Limit = 100
	}
	out := found{Matches: []match{}}
	var read int64
	list := abi.FileList{Prefix: a.Prefix, Limit: 1000}
	for {
		var page abi.Files
		if err := door(ctx, o, abi.CallFileList, list, &page); err != nil {
			return agent.ToolResult{}, err
		}
		for _, f := range page.Files {
			if read+f.Size > maxSearched {
				out.More = true
				continue
			}
			read += f.Size
			text, ok, err := whole(ctx, o, f.Path, maxSearched)
			if agent.KindOf(err) == agent.NotFound && err != nil { // deleted meanwhile
				continue
			}
			if err != nil {
				return agent.ToolResult{}, err
			}
			if !ok {
				continue
			}
			out.Files++
			if out.Matches = lines(out.Matches, re, f.Path, text, a.Limit); len(out.Matches) > a.Limit {
				out.Matches, out.More = out.Matches[:a.Limit], true
				return value(out)
			}
		}
		if list.After = page.After; page.After == "" {
			return value(out)
		}
	}
}

// lines appends those that match, until there are more than limit.
func lines(out []match, re *regexp.Regexp, path, text string, limit int) []match {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if !re.MatchString(line) {
			continue
		}
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "") + "..."
		}
		if out = append(out, match{path, n, line}); len(out) > limit {
			break
		}
	}
	return out
}

type diffArgs struct {
	Path string  `json:"path"`
	With string  `json:"with"`
	Text *string `json:"text"`
}

func diffFiles(ctx context.Context, o *tools.CallOptions, a diffArgs) (agent.ToolResult, error) {
	if (a.With == "") == (a.Text == nil) {
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Invalid, "give what to compare it with: another path, or a text"))
	}
	one, ok, err := whole(ctx, o, a.Path, maxDiffed)
	if err != nil {
		return agent.ToolResult{}, err
	}
	other, name, also := "", "text", true
	if a.Text != nil {
		other = *a.Text
	} else if other, also, err = whole(ctx, o, a.With, maxDiffed); err != nil {
		return agent.ToolResult{}, err
	} else {
		name = a.With
	}
	if !ok || !also {
		return agent.ToolResult{}, agent.Errorf(agent.Invalid, "only files of text can be compared")
	}
	text, added, removed := unified(a.Path, name, one, other)
	return value(map[string]any{"diff": text, "added": added, "removed": removed})
}
