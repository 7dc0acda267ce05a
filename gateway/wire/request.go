package wire

import (
	"encoding/json"

	"github.com/skep-dev/skep/agent"
)

// Request is what a model is asked, in canonical form.
type Request struct {
	Model    string
	System   []Part // text
	Messages []Message
	Tools    []Tool
	Choice   Choice
	Parallel *bool // calls of tools at once; nil leaves it to the provider

	MaxTokens   *int64
	Temperature *float64
	TopP        *float64
	TopK        *int64
	Frequency   *float64 // penalty
	Presence    *float64 // penalty
	Seed        *int64
	Stop        []string
	Reasoning   *Reasoning
	Format      *Format

	Stream     bool
	StreamUse  bool // a chat client asked for usage in the stream
	Array      bool // the stream is a JSON array (Gemini's form without alt=sse)
	CacheKey   string
	Tier       string // service tier
	User       string
	Metadata   map[string]string
	ForgetSafe bool // store:false: the provider must not keep the answer
}

// Role is whose message it is. Results of tools are parts of the user's messages.
type Role uint8

const (
	User Role = iota
	Assistant
)

// Message is one turn: the parts in the order in which they were said.
type Message struct {
	Role  Role
	Parts []Part
}

// PartKind says what a part is.
type PartKind uint8

const (
	TextPart PartKind = iota
	ThoughtPart
	CallPart
	ResultPart
	MediaPart
	RefusalPart
)

// Part is a piece of a message.
type Part struct {
	Kind PartKind
	Text string // of TextPart, ThoughtPart (may be empty, when only Opaque is known) and RefusalPart

	Thought *Thinking // of ThoughtPart; also of a CallPart on which a provider's opaque data sits (Gemini's thoughtSignature)
	Call    *ToolCall
	Result  *ToolResult
	Media   *Blob
	Cache   *CacheMark // the prompt up to here shall be cached
	Item    string     // id of the item (responses), if any; without the kind before it when it was given here
	Ref     bool       // the part stands for the one of an earlier answer whose Item that is (responses), and has nothing else; see SignItem
}

// SignItem ends the id of an item that holds what sits on a call, after the id of the call's item.
const SignItem = "s"

// Thinking is opaque data of a provider about how it reasoned. It means something to who made it alone: it is sent to the same Origin, byte for
// byte and in the same order, and to nobody else.
type Thinking struct {
	Opaque   string // signature, encrypted content or redacted data
	Redacted bool   // Opaque stands for the whole text (Anthropic's redacted_thinking)
	Origin   Origin
}

// Origin is who made opaque data. A zero field is not known, and fits all.
type Origin struct {
	Protocol string `json:"protocol,omitempty"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	Secret   string `json:"secret,omitempty"` // name of the key: opaque data may be bound to an account
}

// ToolCall is a call that a model wants made.
type ToolCall struct {
	ID     string
	Name   string
	Args   string // JSON of an object, "{}" when there are no arguments; free text when Custom
	Custom bool   // free text, by a custom tool
}

// ToolResult answers a call.
type ToolResult struct {
	CallID string
	Name   string // of the tool, where the protocol wants it; found by the call otherwise
	Parts  []Part // TextPart and MediaPart
	Failed bool
}

// Blob is an image, a file or sound: by Data, or by URL, or by FileID.
type Blob struct {
	MIME   string // such as image/png; empty with a URL whose kind is not known, then Image tells
	Data   string // base64, standard alphabet with padding
	URL    string
	FileID string
	Name   string
	Image  bool
	Detail string // low, high or auto
}

// CacheMark asks for the prompt up to a part to be cached.
type CacheMark struct {
	TTL string // "5m", "1h", or "" for what is usual
}

// Tool is one that a model may call. A tool of a provider's own (web search, computer use, shell) is Native, and goes only to its own protocol.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // of the arguments; nil for none
	Strict      *bool
	Custom      bool // takes free text; Schema is its grammar, if any
	Native      json.RawMessage
	Of          agent.Protocol // whose Native is
	Cache       *CacheMark
}

// ChoiceKind says which tools a model may or must call.
type ChoiceKind uint8

const (
	ChoiceUnset ChoiceKind = iota
	ChoiceAuto
	ChoiceNone
	ChoiceAny  // some tool
	ChoiceTool // the tool Name
)

// Choice says which tools a model may or must call.
type Choice struct {
	Kind  ChoiceKind
	Name  string
	Among []string // only these tools, with ChoiceAuto and ChoiceAny
}

// Reasoning says how much a model shall think.
type Reasoning struct {
	Effort  string // none, minimal, low, medium, high, xhigh, max; "" leaves it to Budget or the provider
	Budget  *int64 // tokens
	Adapt   bool   // as the model sees fit (Anthropic's adaptive)
	Summary string // of the thoughts: auto, concise, detailed, or "" for none asked for
	Hidden  bool   // thoughts shall not be shown, only their opaque data
	Opaque  bool   // opaque data is asked for (responses: include reasoning.encrypted_content)
}

// Format asks for an answer in JSON.
type Format struct {
	Name   string
	Schema json.RawMessage // nil asks for any JSON object
	Strict *bool
}
