package driver

import (
	"time"
)

// Names of commands, each with its Body and the Body of its reply. Those that begin something answer when it has begun; what comes of it is told by
// events. A command that names what it begins (Turn, Exec.ID) begins it once: again, also by another command, it answers for the same.
const (
	DoSetup     = "setup"       // SetupArgs -> SetupResult: when the script has ended
	DoRepo      = "repo"        // RepoArgs -> RepoResult: what to work on comes into the workspace, when it is there
	DoDiff      = "diff"        // DiffArgs -> DiffResult: what was changed since DoRepo
	DoPrompt    = "prompt"      // Prompt -> empty: starts a turn, and the CLI before it unless the session to go on with runs
	DoAnswer    = "answer"      // Answer -> empty
	DoInterrupt = "interrupt"   // InterruptArgs -> empty: when the turn has ended
	DoExec      = "exec"        // Exec -> ExecResult: when it has ended, or at once with Background
	DoProcesses = "processes"   // empty -> Processes: what exec has started and the CLI
	DoSignal    = "signal"      // SignalArgs -> empty: to a process group
	DoList      = "file.list"   // FileArgs -> FileList
	DoRead      = "file.read"   // FileArgs -> empty: the bytes go over FileArgs.Stream
	DoWrite     = "file.write"  // FileArgs -> FileInfo: the bytes come over FileArgs.Stream, and are there whole or not at all
	DoDelete    = "file.delete" // FileArgs -> empty
	DoMakeDir   = "file.mkdir"  // FileArgs -> empty
	DoArchive   = "archive"     // ArchiveArgs -> empty: a tar of paths goes over the Stream
	DoUnpack    = "unpack"      // ArchiveArgs -> empty: a tar comes over the Stream
	DoPort      = "port"        // PortArgs -> empty: a connection to a port within the box is at the Stream
	DoShutdown  = "shutdown"    // empty -> empty: everything ends politely, then the driver
)

// Prompt begins a turn of a CLI.
type Prompt struct {
	Turn        string   `json:"turn"`              // names it
	CLI         string   `json:"cli"`               // name of a backend
	Command     []string `json:"command,omitempty"` // acp
	Model       string   `json:"model"`             // as the gateway takes it
	Text        string   `json:"text"`
	Resume      string   `json:"resume,omitempty"`      // SessionData.ID of a session to go on with; a new one unless given
	Permissions string   `json:"permissions,omitempty"` // policy: ask about everything; all: ask about nothing
	Dir         string   `json:"dir,omitempty"`         // the workspace unless given
	Images      []string `json:"images,omitempty"`      // paths of files to show it
}

// Answer answers a PermissionAsked or a QuestionAsked.
type Answer struct {
	ID      string `json:"id"`
	Allow   bool   `json:"allow"`
	Message string `json:"message,omitempty"` // why not, or the answer to a question
}

// InterruptArgs ends a turn where it is: by the CLI's protocol, then by signals.
type InterruptArgs struct {
	Turn string `json:"turn"`
}

// Exec runs a program in a process group of its own. When the program has ended, whatever else is left of its group is ended too, unless Background.
type Exec struct {
	ID         string            `json:"id"`
	Command    []string          `json:"command"` // one entry is a line for sh
	Dir        string            `json:"dir,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Stdin      []byte            `json:"stdin,omitempty"`
	Timeout    time.Duration     `json:"timeout,omitempty"` // 10 minutes unless given; none in the background
	Background bool              `json:"background,omitempty"`
	Show       bool              `json:"show,omitempty"`   // as events exec.output
	Most       int64             `json:"most,omitempty"`   // bytes of each output in the result; 64 KiB unless given
	Stream     *Stream           `json:"stream,omitempty"` // frames of its output as it comes, and input: see ExecFrame
}

// ExecResult is how it ended.
type ExecResult struct {
	ID       string `json:"id,omitempty"` // by which the server has named it: for signals
	Code     int    `json:"code"`         // -1 when by a signal
	Signal   string `json:"signal,omitempty"`
	OOM      bool   `json:"oom,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Stdout   string `json:"stdout,omitempty"` // the end of it, when it is long
	Stderr   string `json:"stderr,omitempty"`
	Dropped  int64  `json:"dropped,omitempty"` // bytes that are not in these
	PID      int    `json:"pid,omitempty"`     // of one in the background
}

// Processes lists what runs.
type Processes struct {
	List []Process `json:"processes"`
}

type Process struct {
	ID      string    `json:"id"` // of Exec, or cli
	PID     int       `json:"pid"`
	Command []string  `json:"command"`
	Started time.Time `json:"started"`
	Ended   bool      `json:"ended,omitempty"`
	Code    int       `json:"code,omitempty"`
}

type SignalArgs struct {
	ID     string `json:"id"`
	Signal string `json:"signal,omitempty"` // TERM, followed by KILL after 5 s, unless given
}

// SetupArgs runs a script with sh -eu in the workspace. What it writes is told by events.
type SetupArgs struct {
	Script  string        `json:"script"`
	Timeout time.Duration `json:"timeout,omitempty"` // 10 minutes unless given
}

type SetupResult struct {
	ExecResult
}

// RepoArgs brings what to work on into the workspace: a clone of URL, or a tar that comes over Stream. What is there then is what DoDiff compares with.
type RepoArgs struct {
	URL    string  `json:"url,omitempty"`
	Ref    string  `json:"ref,omitempty"`   // branch, tag or commit; the default branch unless given
	Depth  int     `json:"depth,omitempty"` // of the clone; whole unless given
	Stream *Stream `json:"stream,omitempty"`
}

type RepoResult struct {
	Commit string `json:"commit"` // that the work begins at; one of the driver's own when it was no git repository
	Branch string `json:"branch,omitempty"`
	Files  int    `json:"files"`
}

// DiffArgs asks for what was changed.
type DiffArgs struct {
	Base   string  `json:"base,omitempty"`   // commit; that of DoRepo unless given
	Commit string  `json:"commit,omitempty"` // make a commit with this message, on Branch, and return a bundle over Stream in place of the patch
	Branch string  `json:"branch,omitempty"`
	Author string  `json:"author,omitempty"` // NAME <ADDRESS>
	Stream *Stream `json:"stream"`           // of the patch (git diff --binary), or the bundle
}

type DiffResult struct {
	Base    string     `json:"base"`
	Commit  string     `json:"commit,omitempty"`
	Bytes   int64      `json:"bytes"`   // that went over the stream
	Changed []FileStat `json:"changed"` // at most MaxChanged
	Files   int        `json:"files"`   // that were changed, of which Changed may not have all
}

// MaxChanged bounds DiffResult.Changed, and MaxListed FileList.Files.
const (
	MaxChanged = 2000
	MaxListed  = 2000
)

// FileStat is a changed file. Counts are -1 for what is no text.
type FileStat struct {
	Path    string `json:"path"`
	Op      string `json:"op"` // add, change, delete, rename
	From    string `json:"from,omitempty"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// FileArgs names a file, absolute or within the workspace.
type FileArgs struct {
	Path      string  `json:"path"`
	Mode      uint32  `json:"mode,omitempty"` // of a file that is written; 0644 unless given
	Recursive bool    `json:"recursive,omitempty"`
	Offset    int64   `json:"offset,omitempty"`
	Length    int64   `json:"length,omitempty"` // to the end unless given
	Stream    *Stream `json:"stream,omitempty"`
}

type FileInfo struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"` // file, dir, link, other
	Size     int64     `json:"size"`
	Mode     uint32    `json:"mode"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"` // of a link
}

type FileList struct {
	Files []FileInfo `json:"files"`
	More  bool       `json:"more,omitempty"` // not all: there are more than MaxListed
}

// ArchiveArgs packs or unpacks. Owners are not kept, and nothing outside of Dir is written.
type ArchiveArgs struct {
	Dir    string   `json:"dir,omitempty"`   // the workspace unless given
	Paths  []string `json:"paths,omitempty"` // within Dir; all unless given
	Stream *Stream  `json:"stream"`
}

type PortArgs struct {
	Port   int     `json:"port"`
	Stream *Stream `json:"stream"`
}
