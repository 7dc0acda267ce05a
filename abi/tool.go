package abi

// The calls of tools. A name is SERVER.METHOD; both parts may also be written as identifiers, as declarations have them.
const (
	CallTool         = "tool.call"     // ToolCall -> ToolResult
	CallToolChange   = "tool.change"   // ToolChange -> empty: the calls that follow are approved together, or refused together
	CallToolList     = "tool.list"     // ToolQuery -> Tools: those that are granted, with their first sentence
	CallToolSearch   = "tool.search"   // ToolQuery -> Tools: by relevance
	CallToolDescribe = "tool.describe" // ToolQuery -> ToolText: declarations in TypeScript

	// Files of the session, artifacts among them.
	CallFileRead = "file.read" // FileRead -> FilePart
	CallFilePut  = "file.put"  // FilePut -> FileInfo
	CallFileList = "file.list" // FileList -> Files

	// What the AGENTS.md of the agent's package and of the session's files say.
	CallInstructions = "file.instructions" // InstructionsOf -> Instructions

	CallSkillList = "skill.list" // empty -> Skills
	CallSkillLoad = "skill.load" // SkillLoad -> SkillText
)

// ToolCall calls a tool.
type ToolCall struct {
	Tool string `json:"tool"`
	Args Raw    `json:"args,omitempty"` // an object; {} when empty

	// Undo marks a call that takes another back. In a ToolChange it follows the one that it takes back, and is approved with it; it is then made with
	// the same mark, if it is needed.
	Undo bool `json:"undo,omitempty"`

	// Permission says for which PermissionAsked of a sandbox's CLI the call stands; a question to a person about it is taken back by sandbox.withdraw.
	Permission string `json:"permission,omitempty"`
}

// ToolResult is what it returned: its structured content where there is some, else what its text is as JSON, else its text. What is no
// JSON, or too large, is {"artifact": PATH, "type", "size"} in its place.
type ToolResult struct {
	Value Raw `json:"value"`
}

// ToolChange asks for calls to be approved as a whole. Each is then made by tool.call with the same arguments, once; one that is marked as an undo
// only when the call before it was made.
type ToolChange struct {
	Title string     `json:"title,omitempty"`
	Calls []ToolCall `json:"calls"` // 1 to 256, without those marked as undo, of which each may have one
}

// ToolQuery picks tools.
type ToolQuery struct {
	Query  string   `json:"query,omitempty"`  // search: words
	Names  []string `json:"names,omitempty"`  // describe: names, or SERVER.*
	Server string   `json:"server,omitempty"` // only of this one
	Effect string   `json:"effect,omitempty"` // only up to this one
	Level  string   `json:"level,omitempty"`  // describe: "names", "signatures", "compact" (the default), "full"
	Limit  int      `json:"limit,omitempty"`  // 10 for search, all for list, unless given

	// Of search and list: with the schemas of arguments, and descriptions whole, as models are told of tools.
	Schemas bool `json:"schemas,omitempty"`
}

// Tools answers it.
type Tools struct {
	Tools []ToolInfo `json:"tools"`
	More  int        `json:"more,omitempty"` // that there are besides
}

// ToolInfo is what a list says of a tool.
type ToolInfo struct {
	Name        string `json:"name"`
	Path        string `json:"path"` // how code writes it: tools.SERVER.METHOD
	Effect      string `json:"effect"`
	Description string `json:"description,omitempty"` // its first sentence
	Schema      Raw    `json:"schema,omitempty"`      // JSON Schema of its arguments, where it was asked for
}

// ToolText is declarations.
type ToolText struct {
	Text string `json:"text"`
}

// FileRead reads a part of a file of the session.
type FileRead struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"` // up to 4 MiB; as much as that unless given
}

// FilePart is a part of a file.
type FilePart struct {
	Body []byte `json:"body"` // base64 in JSON
	FileInfo
}

// FilePut writes a file of the session, whole.
type FilePut struct {
	Path string `json:"path"`
	Type string `json:"type,omitempty"`
	Body []byte `json:"body"`
}

// FileInfo is what is known of a file.
type FileInfo struct {
	Path string `json:"path"`
	Type string `json:"type"`
	Size int64  `json:"size"`
}

// FileList asks for the files whose paths begin so.
type FileList struct {
	Prefix string `json:"prefix,omitempty"`
	After  string `json:"after,omitempty"`
	Limit  int    `json:"limit,omitempty"` // 100 unless given, at most 1000
}

// Files answers it.
type Files struct {
	Files []FileInfo `json:"files"`
	After string     `json:"after,omitempty"` // for the next page; empty at the end
}

// InstructionsOf asks which instructions there are for a path.
type InstructionsOf struct {
	Path string `json:"path,omitempty"` // a file or a folder; the root unless given
}

// Instructions are those of the folders of the path, the package's before the session's, and the nearest last: it wins where they differ.
// Whoever wrote them is trusted no more than whoever wrote the files.
type Instructions struct {
	Text  string            `json:"text"` // all of them, for a model, each marked with where it is from; up to 64 KiB
	Files []InstructionFile `json:"files"`
}

// InstructionFile is one of them.
type InstructionFile struct {
	Path string `json:"path"`
	From string `json:"from"` // "package", or "session"
	Size int64  `json:"size"`
	Cut  bool   `json:"cut,omitempty"` // it is longer than what is in the text
}

// Skills lists skills.
type Skills struct {
	Skills []SkillInfo `json:"skills"`
}

// SkillInfo is what a list says of a skill.
type SkillInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// SkillLoad asks for a file of a skill, whose exact name it says.
type SkillLoad struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"` // SKILL.md unless given
}

// SkillText is a file of a skill, and which others there are.
type SkillText struct {
	Text  string   `json:"text"`
	Files []string `json:"files,omitempty"`
}
