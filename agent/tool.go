package agent

import (
	"encoding/json"
	"strings"
	"time"
)

// Effect is what a tool can do to the world. The order is that of what it may do.
type Effect uint8

const (
	Unclassified  Effect = iota // nobody has said; it counts as Execute
	Read                        // looks, and changes nothing
	Modify                      // changes things in ways that can be undone
	ModifyExecute               // changes things for good, or sets off what others run
	Execute                     // runs what it is given
)

var effectNames = [...]string{"unclassified", "read", "modify", "modify_execute", "execute"}

func (e Effect) String() string               { return nameOf(effectNames[:], e) }
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }
func (e *Effect) UnmarshalText(b []byte) error {
	return parseName(effectNames[:], b, e, "effect")
}

// Grade is the effect that the tool is judged by: Execute for what is unclassified.
func (e Effect) Grade() Effect {
	if e == Unclassified {
		return Execute
	}
	return e
}

// Tool is a named function with JSON Schema in and out, and an effect.
type Tool struct {
	Name        string          `json:"name"`   // SERVER.METHOD
	Server      string          `json:"server"` // of this app
	Method      string          `json:"method"` // as its server calls it
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input"`            // JSON Schema 2020-12 of an object
	Output      json.RawMessage `json:"output,omitempty"` // of its structured result, when its server says

	Effect     Effect     `json:"effect"`
	By         EffectFrom `json:"by"`                   // who said so
	Idempotent bool       `json:"idempotent,omitempty"` // the same call again changes nothing more; only of who is believed
	Digest     Digest     `json:"digest"`               // of all that its server says of it
	Changed    bool       `json:"changed,omitempty"`    // its server says something else of it than when it was pinned: each call is asked about

	// Undo, when the tool's server declares it, is the method that takes a call of this one back. It gets the arguments and
	// the result of the call, as {"args", "result"}.
	Undo string `json:"undo,omitempty"`

	Hidden bool `json:"-"` // no list has it: Skep calls it itself
}

// EffectFrom says who has said what a tool's effect is.
type EffectFrom uint8

const (
	FromNobody    EffectFrom = iota
	FromHints                // annotations of a server that the operator trusts
	FromCatalogue            // the classification that Skep ships
	FromManifest             // a plugin's manifest, or Skep itself for its own tools
	FromOperator
)

var effectFromNames = [...]string{"nobody", "hints", "catalogue", "manifest", "operator"}

func (f EffectFrom) String() string               { return nameOf(effectFromNames[:], f) }
func (f EffectFrom) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
func (f *EffectFrom) UnmarshalText(b []byte) error {
	return parseName(effectFromNames[:], b, f, "source of an effect")
}

// ToolName joins the name of a server and of a method of its.
func ToolName(server, method string) string { return server + "." + method }

// SplitTool splits the name of a tool at the first dot: names of servers have none.
func SplitTool(name string) (server, method string, ok bool) { return strings.Cut(name, ".") }

// ServerKind is how a server of tools is reached.
type ServerKind uint8

const (
	UnknownServer ServerKind = iota
	MCPStdio                 // a program that speaks MCP over its standard input and output
	MCPHTTP                  // a URL that speaks MCP by Streamable HTTP
	MCPSSE                   // a URL of an old server, by HTTP and SSE (MCP 2024-11-05)
	OpenAPI                  // an API that an OpenAPI 3 document describes
	AgentTools               // functions of an agent of the app, as its plugin's manifest declares them
	BuiltIn                  // Skep's own; these are there without a record
)

var serverKindNames = [...]string{"unknown", "stdio", "http", "sse", "openapi", "agent", "builtin"}

func (k ServerKind) String() string               { return nameOf(serverKindNames[:], k) }
func (k ServerKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *ServerKind) UnmarshalText(b []byte) error {
	return parseName(serverKindNames[:], b, k, "kind of tool server")
}

// ToolServer is where tools of an app come from.
type ToolServer struct {
	App         App        `json:"app"`
	Name        string     `json:"name"`
	Kind        ServerKind `json:"kind"`
	Description string     `json:"description,omitempty"`

	Command []string          `json:"command,omitempty"` // stdio: program and arguments; no shell is used
	Env     map[string]string `json:"env,omitempty"`     // stdio; a value may hold ${secret:NAME}
	Dir     string            `json:"dir,omitempty"`     // stdio: where it runs; a folder of its own unless given

	URL     string            `json:"url,omitempty"`     // http, sse; openapi: of the API, when not as its document says
	Header  map[string]string `json:"header,omitempty"`  // http, sse, openapi; a value may hold ${secret:NAME}
	Private bool              `json:"private,omitempty"` // http, sse, openapi: the URL may lead to a private or loopback address
	OAuth   *ToolOAuth        `json:"oauth,omitempty"`   // http, sse

	Document Digest `json:"document,omitempty"` // openapi: of the document, which is kept as a blob
	Agent    string `json:"agent,omitempty"`    // agent: whose functions

	Trusted     bool              `json:"trusted,omitempty"`     // what it says of its tools' effects is believed
	Effects     map[string]Effect `json:"effects,omitempty"`     // by method, as the operator classified them
	Pins        map[string]Digest `json:"pins,omitempty"`        // by method, as they were when a person last looked at them
	Only        []string          `json:"only,omitempty"`        // methods that are taken, with * at the end for a prefix; all unless given
	Timeout     time.Duration     `json:"timeout,omitempty"`     // of a call; nanoseconds in JSON; 60 s unless given
	Concurrency int               `json:"concurrency,omitempty"` // calls at once; 8 unless given

	Rev     int64     `json:"rev"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// ToolOAuth is how Skep authorises itself with a server (MCP authorization). Tokens are in the vault, one for each user.
type ToolOAuth struct {
	ClientID     string   `json:"client_id,omitempty"`     // of a client that was registered before; else Skep finds a way
	ClientSecret string   `json:"client_secret,omitempty"` // name of the secret of the vault that holds it
	Metadata     string   `json:"metadata,omitempty"`      // URL of a client id metadata document
	Scopes       []string `json:"scopes,omitempty"`        // asked for; as the server says unless given
}

// ToolStatus is how a server of tools stands.
type ToolStatus struct {
	Server   string      `json:"server"`
	Kind     ServerKind  `json:"kind"`
	State    ServerState `json:"state"`
	Error    string      `json:"error,omitempty"`
	Hint     string      `json:"hint,omitempty"`
	Tools    int         `json:"tools"`
	Protocol string      `json:"protocol,omitempty"` // revision of MCP that is spoken
	Version  string      `json:"version,omitempty"`  // that the server says of itself
	Restarts int         `json:"restarts,omitempty"`
	Retry    time.Time   `json:"retry,omitzero"`   // when it is tried again
	Notes    []string    `json:"notes,omitempty"`  // such as of tools that were left out, and why
	Stderr   string      `json:"stderr,omitempty"` // the end of what a program has said there
	Since    time.Time   `json:"since,omitzero"`
}

// ServerState says whether a server can be called.
type ServerState uint8

const (
	ServerIdle ServerState = iota // it is started when it is needed
	ServerStarting
	ServerReady
	ServerFailed    // it is tried again at Retry
	ServerNeedsAuth // a person has to authorise Skep
)

var serverStateNames = [...]string{"idle", "starting", "ready", "failed", "needs_auth"}

func (s ServerState) String() string               { return nameOf(serverStateNames[:], s) }
func (s ServerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *ServerState) UnmarshalText(b []byte) error {
	return parseName(serverStateNames[:], b, s, "state of a tool server")
}

// ToolCall is one call of a tool: for whom, of which, with what.
type ToolCall struct {
	App     App
	Agent   string
	AgentID AgentID
	Session SessionID
	Run     RunID  // empty outside of runs
	Call    uint64 // its number in the run's journal
	User    string // whose credentials it uses where a server has them by user: the token's id, or ""

	Tool string          // its whole name
	Args json.RawMessage // an object
}

// Verdict is what policy says of a call. The zero one denies.
type Verdict uint8

const (
	Deny Verdict = iota
	Ask          // a person is asked
	Allow
)

var verdictNames = [...]string{"deny", "ask", "allow"}

func (v Verdict) String() string               { return nameOf(verdictNames[:], v) }
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
func (v *Verdict) UnmarshalText(b []byte) error {
	return parseName(verdictNames[:], b, v, "verdict")
}

// Decision is what became of judging a call, and why.
type Decision struct {
	Verdict Verdict       `json:"verdict"`
	Effect  Effect        `json:"effect"`            // that it was judged by
	Rule    string        `json:"rule"`              // as it stands in the policy; or "default modify", "floor", "grant", "hook NAME", "allowance ID"
	From    string        `json:"from,omitempty"`    // where it stands: "policy:12"
	Reason  string        `json:"reason"`            // in a sentence that a person can read
	Notes   []string      `json:"notes,omitempty"`   // of hooks
	Hold    time.Duration `json:"hold,omitempty"`    // of Ask: how long an approval of the same rule holds; nanoseconds in JSON
	Count   int           `json:"count,omitempty"`   // of Ask: for how many calls
	Timeout time.Duration `json:"timeout,omitempty"` // of Ask: when nobody answers; nanoseconds in JSON; 0 means the default
	Budget  string        `json:"budget,omitempty"`  // of Ask: the budget that it is beyond, as it stands in the policy
}

// ToolResult is what a call of a tool returned: a JSON value.
type ToolResult struct {
	Value json.RawMessage // structured content where there is some; else JSON or text
	Text  bool            // Value is a JSON string that is the tool's text
	Blobs []ToolBlob      // images, audio, resources; in Value they are {"artifact": "NAME", ...} by these indices, see ToolBlob
}

// ToolBlob is what a result holds that is no JSON. In Value its place is held by {"$blob": INDEX}.
type ToolBlob struct {
	Name string // a file name; may be empty
	Type string // media type
	Body []byte
}

// ToolUse is the data of an EventToolCalled and an EventToolReturned.
type ToolUse struct {
	Call     uint64          `json:"call,omitempty"` // its number in the run's journal
	Tool     string          `json:"tool"`
	Digest   Digest          `json:"digest,omitempty"`
	Args     json.RawMessage `json:"args,omitempty"` // clipped to 2 KiB, as a string when it was cut
	Decision *Decision       `json:"decision,omitempty"`
	Duration time.Duration   `json:"duration,omitempty"` // nanoseconds in JSON
	Bytes    int64           `json:"bytes,omitempty"`    // of the result
	Error    string          `json:"error,omitempty"`
}
