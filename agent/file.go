package agent

import (
	"strings"
	"time"
	"unicode/utf8"
)

// File is bytes that are kept with a session: an attachment that came in, or an artifact that came out.
type File struct {
	App     App       `json:"app"`
	Session SessionID `json:"session"`
	Path    string    `json:"path"` // slash-separated; artifacts of a run are below "artifacts/RUN/"
	Type    string    `json:"type"` // media type
	Size    int64     `json:"size"`
	Digest  Digest    `json:"digest"`
	Run     RunID     `json:"run,omitempty"` // that made it
	Rev     int64     `json:"rev"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// MaxFile is the most bytes of one file, MaxFiles the most files of one session.
const (
	MaxFile  = 64 << 20
	MaxFiles = 10_000
)

// CheckPath returns an Invalid error unless p is a clean relative path of up to 512 bytes.
func CheckPath(p string) error {
	bad := p == "" || len(p) > 512 || !utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
	for part := range strings.SplitSeq(p, "/") {
		bad = bad || part == "" || part == "." || part == ".."
	}
	if bad {
		return Errorf(Invalid, "%s is no path of a file: write NAME or FOLDER/NAME, without . and ..", quote(p))
	}
	return nil
}

// Artifact is a value that was too large to pass on whole, or bytes that are no JSON: it is kept as a file of the session, and this is
// its handle.
type Artifact struct {
	Path string `json:"artifact"` // of the file
	Type string `json:"type"`
	Size int64  `json:"size"`
}
