package abi

// The calls of a run whose agent has a sandbox. Times are milliseconds. A call that begins something begins it once, also when it is made again after a
// crash: turns and programs are named by the run and the number of the call.
const (
	CallSandboxOpen      = "sandbox.open"       // empty -> Sandbox: the run's own, or the agent's, when it is ready
	CallSandboxExec      = "sandbox.exec"       // SandboxExec -> SandboxExit, when the program has ended
	CallSandboxRead      = "sandbox.read"       // SandboxRead -> SandboxPart
	CallSandboxWrite     = "sandbox.write"      // SandboxWrite -> SandboxFile
	CallSandboxList      = "sandbox.list"       // SandboxPath -> SandboxFiles
	CallSandboxDelete    = "sandbox.delete"     // SandboxPath -> empty
	CallSandboxAttach    = "sandbox.attach"     // SandboxAttach -> SandboxAttached: files of the session, read-only, in the workspace
	CallSandboxRepo      = "sandbox.repo"       // SandboxRepo -> SandboxBase: what to work on comes into the workspace
	CallSandboxDiff      = "sandbox.diff"       // SandboxDiff -> SandboxChanges: what was changed since, kept as a file of the session
	CallSandboxPrompt    = "sandbox.prompt"     // SandboxPrompt -> SandboxTurn: begins a turn of the CLI
	CallSandboxNext      = "sandbox.next"       // SandboxNext -> SandboxEvents, when there is one
	CallSandboxAnswer    = "sandbox.answer"     // SandboxAnswer -> SandboxAnswered
	CallSandboxAsk       = "sandbox.ask"        // SandboxQuestion -> SandboxReply: what a person answers
	CallSandboxWithdraw  = "sandbox.withdraw"   // SandboxWithdraw -> empty: takes questions to a person back that the CLI does not ask any more
	CallSandboxInterrupt = "sandbox.interrupt"  // SandboxTurn -> empty: when the turn has ended
	CallSandboxSave      = "sandbox.checkpoint" // SandboxSave -> SandboxSaved: paths of the workspace, kept as a tar among the files of the session
	CallSandboxRestore   = "sandbox.restore"    // SandboxRestore -> SandboxSaved: and back, after all of it was compared with its manifest
	CallSandboxProcesses = "sandbox.processes"  // empty -> SandboxProcesses
	CallSandboxSignal    = "sandbox.signal"     // SandboxSignal -> empty
	CallSandboxPreview   = "sandbox.preview"    // SandboxPort -> SandboxPreview: a link by which a browser sees what listens at a port
)

// Bounds of what goes through these calls, in bytes.
const (
	MaxSandboxPart   = 4 << 20 // of a file that is read or written
	MaxSandboxPrompt = 1 << 19 // of a prompt
)

// Sandbox is one that is ready.
type Sandbox struct {
	ID          string `json:"id"`
	Environment string `json:"environment"` // NAME@REVISION
	Provider    string `json:"provider"`
	Keep        string `json:"keep"`                // cattle or pet
	Generation  int64  `json:"generation"`          // of a pet: greater than before when its processes have begun anew
	Kept        int64  `json:"kept,omitempty"`      // of a pet: another than before when its files have begun anew
	CLI         string `json:"cli,omitempty"`       // that the agent's record names
	Workspace   string `json:"workspace,omitempty"` // the folder in which all begins
}

// SandboxExec runs a program. One word is a line for sh.
type SandboxExec struct {
	Command    []string          `json:"command"`
	Dir        string            `json:"dir,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Stdin      []byte            `json:"stdin,omitempty"` // base64 in JSON
	Timeout    int64             `json:"timeout,omitempty"`
	Background bool              `json:"background,omitempty"` // the answer comes when it has begun
	Show       bool              `json:"show,omitempty"`       // its output goes into the session's log
}

// SandboxExit is how it ended.
type SandboxExit struct {
	ID       string `json:"id"`
	Code     int    `json:"code"` // -1 when by a signal
	Signal   string `json:"signal,omitempty"`
	OOM      bool   `json:"oom,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Stdout   string `json:"stdout"` // the end of it, when it is long
	Stderr   string `json:"stderr"`
	Dropped  int64  `json:"dropped,omitempty"`
	PID      int    `json:"pid,omitempty"` // of one in the background
}

// SandboxRead reads a part of a file, up to MaxSandboxPart.
type SandboxRead struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"`
}

// SandboxPart is what was read. More says that the file may go on.
type SandboxPart struct {
	Body []byte `json:"body"`
	More bool   `json:"more,omitempty"`
}

// SandboxWrite writes a file whole.
type SandboxWrite struct {
	Path string `json:"path"`
	Body []byte `json:"body"`
	Mode uint32 `json:"mode,omitempty"` // 0644 unless given
}

// SandboxPath names a file or a folder.
type SandboxPath struct {
	Path      string `json:"path,omitempty"` // the workspace unless given
	Recursive bool   `json:"recursive,omitempty"`
}

// SandboxFile is what is known of one.
type SandboxFile struct {
	Path     string `json:"path"`
	Type     string `json:"type"` // file, dir, link or other
	Size     int64  `json:"size"`
	Mode     uint32 `json:"mode"`
	Modified int64  `json:"modified"`
	Target   string `json:"target,omitempty"`
}

// SandboxFiles lists files. More says that there are too many to list.
type SandboxFiles struct {
	Files []SandboxFile `json:"files"`
	More  bool          `json:"more,omitempty"`
}

// SandboxAttach names files of the session.
type SandboxAttach struct {
	Files []string `json:"files"`
}

// SandboxAttached says where they are, in the same order.
type SandboxAttached struct {
	Paths  []string `json:"paths"`
	Images []string `json:"images,omitempty"` // those of them that are images
}

// SandboxRepo says what to work on: URL, or File, which is a tar (also with gzip) among the files of the session.
type SandboxRepo struct {
	URL   string `json:"url,omitempty"`
	Ref   string `json:"ref,omitempty"`
	Depth int    `json:"depth,omitempty"`
	File  string `json:"file,omitempty"`
}

// SandboxBase is what the work begins at.
type SandboxBase struct {
	Commit string `json:"commit"`
	Branch string `json:"branch,omitempty"`
	Files  int    `json:"files"`
}

// SandboxDiff asks for a patch, or with Commit for a bundle that has a commit with this message on Branch.
type SandboxDiff struct {
	Base   string `json:"base,omitempty"`
	Commit string `json:"commit,omitempty"`
	Branch string `json:"branch,omitempty"`
	Author string `json:"author,omitempty"` // NAME <ADDRESS>
}

// SandboxChanges says where it is. Patch, Bundle and List are empty when nothing was changed.
type SandboxChanges struct {
	Base    string          `json:"base"`
	Commit  string          `json:"commit,omitempty"`
	Patch   string          `json:"patch,omitempty"`  // path among the files of the session
	Bundle  string          `json:"bundle,omitempty"` // likewise
	List    string          `json:"list,omitempty"`   // likewise: the changed files as JSON, a SandboxList
	Usage   string          `json:"usage,omitempty"`  // likewise: what the run has used until then, by the ledger
	Bytes   int64           `json:"bytes"`
	Files   int             `json:"files"`   // that were changed
	Changed []SandboxChange `json:"changed"` // of them, as many as fit
}

// SandboxList is what is kept of a diff beside its patch or bundle.
type SandboxList struct {
	Base    string          `json:"base"`
	Commit  string          `json:"commit,omitempty"`
	Files   int             `json:"files"`
	Changed []SandboxChange `json:"changed"`
}

// SandboxChange is a changed file. Counts are lines, -1 for what is no text.
type SandboxChange struct {
	Path    string `json:"path"`
	Op      string `json:"op"` // add, change, delete or rename
	From    string `json:"from,omitempty"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// SandboxPrompt begins a turn. What is not given is as the agent's record has it.
type SandboxPrompt struct {
	Text   string   `json:"text"`
	Model  string   `json:"model,omitempty"`
	Resume string   `json:"resume,omitempty"` // a session of the CLI's to go on with
	Dir    string   `json:"dir,omitempty"`
	Images []string `json:"images,omitempty"`
}

// SandboxTurn names a turn.
type SandboxTurn struct {
	Turn       string `json:"turn"`
	Generation int64  `json:"generation,omitempty"` // of the sandbox that it was begun in
}

// SandboxNext asks what the script has to know of a turn, after what it was told.
type SandboxNext struct {
	SandboxTurn
	After int64 `json:"after,omitempty"` // SandboxEvents.After of before
}

// SandboxEvents are events of package driver: of these types session.started, permission.asked, permission.withdrawn, question.asked and, last, turn.ended.
type SandboxEvents struct {
	Events []SandboxEvent `json:"events"`
	After  int64          `json:"after"`
}

// SandboxEvent is one of them. Session and Usage come with turn.ended: by what the CLI's session can be resumed, and what the CLI believes to have used.
type SandboxEvent struct {
	Type    string      `json:"type"`
	Data    Raw         `json:"data,omitempty"`
	Session string      `json:"session,omitempty"`
	Usage   *ModelUsage `json:"usage,omitempty"`
}

// SandboxAnswer answers what was asked.
type SandboxAnswer struct {
	ID      string `json:"id"`
	Allow   bool   `json:"allow"`
	Message string `json:"message,omitempty"`
}

// SandboxAnswered says whether the CLI was waiting for it still.
type SandboxAnswered struct {
	Taken bool `json:"taken"`
}

// SandboxQuestion is what a CLI wants to know of a person.
type SandboxQuestion struct {
	ID      string   `json:"id"`
	Text    string   `json:"text"`
	Options []string `json:"options,omitempty"`
	Schema  Raw      `json:"schema,omitempty"` // of the answer, a flat object
}

// SandboxReply is the answer: a text, or with a Schema an object. Refused says why there is none.
type SandboxReply struct {
	Answer  Raw    `json:"answer,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// SandboxWithdraw names permissions and questions.
type SandboxWithdraw struct {
	IDs []string `json:"ids"`
}

// SandboxSave names paths within the workspace; none means all of it.
type SandboxSave struct {
	Paths []string `json:"paths,omitempty"`
	File  string   `json:"file,omitempty"` // where the tar goes, among the files of the session; its manifest goes to File + ".json"
}

// SandboxSaved says what there is.
type SandboxSaved struct {
	File   string `json:"file"`
	Digest string `json:"digest"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
}

// SandboxRestore brings back what SandboxSave has kept.
type SandboxRestore struct {
	File string `json:"file"`
	Dir  string `json:"dir,omitempty"` // the workspace unless given
}

// SandboxProcesses lists what runs.
type SandboxProcesses struct {
	Processes []SandboxProcess `json:"processes"`
}

// SandboxProcess is one of them.
type SandboxProcess struct {
	ID      string   `json:"id"` // SandboxExit.ID, or cli
	PID     int      `json:"pid"`
	Command []string `json:"command"`
	Started int64    `json:"started"`
	Ended   bool     `json:"ended,omitempty"`
	Code    int      `json:"code,omitempty"`
}

// SandboxSignal sends a signal to a process and what it has started: TERM, followed by KILL, unless it is named.
type SandboxSignal struct {
	ID     string `json:"id"`
	Signal string `json:"signal,omitempty"`
}

// SandboxPort names a port of the sandbox, from 1 to 65535.
type SandboxPort struct {
	Port  int   `json:"port"`
	Lasts int64 `json:"lasts,omitempty"` // an hour unless given, a second to a day
}

// SandboxPreview is a link. Whoever has it can use it until it expires, as long as the sandbox is there.
type SandboxPreview struct {
	URL     string `json:"url"`
	Expires int64  `json:"expires"`
}
