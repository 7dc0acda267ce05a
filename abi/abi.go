// Package abi is the contract between a guest and its host: the names of the calls, their wire types, status codes and
// sizes. It imports the standard library only and builds for wasip1, so that the guest SDK shares it.
//
// A guest reaches its host through the functions "skep_call" and "skep_batch" of the import module "extism:host/user".
// Both take and return offsets of Extism memory blocks, as every user function of the Extism ABI does:
//
//	skep_call(name i64, input i64) -> i64   // output block: one status byte, then the output, or an ErrorBody as JSON
//	skep_batch(calls i64) -> i64            // input and output are sequences of frames, see Batch
//
// A script's calls travel by the script guest's own bridge, with the same names and bodies.
package abi

// Version is the version of this contract. A host refuses a guest that asks for a newer one.
const Version = 1

// Module is the import module of Skep's own calls, the one that the Extism ABI reserves for the host's user functions.
const Module = "extism:host/user"

// Reseed is a function that a module may export, () -> () or (seed i64) -> (), because its cells are copies of one image:
// it is called in each new cell before anything else, to mix fresh randomness into generators that were seeded while the
// image was made.
const Reseed = "skep_reseed"

// The names of the calls. Input and output are JSON unless said otherwise.
const (
	CallLog   = "log"   // Log -> empty: a line of console output
	CallEmit  = "emit"  // Emit -> empty: an event in the session's log
	CallHTTP  = "http"  // HTTPRequest -> HTTPResponse, with whole bodies; see CallHTTPOpen for bodies in pieces
	CallAgent = "agent" // AgentCall -> AgentResult: a call of another agent

	CallStateGet    = "state.get"    // StateGet -> StateEntries: keys of the agent's own state
	CallStateSet    = "state.set"    // StateEdit -> StateVersion
	CallStateDelete = "state.delete" // StateEdit -> StateVersion
	CallStateList   = "state.list"   // StateList -> StateEntries
	CallStateBatch  = "state.batch"  // StateBatch -> StateVersion
)

// Status is the first byte of a reply: 0, or an error kind plus one.
type Status uint8

// OK is the status of a call that worked.
const OK Status = 0

// Log is one line of console output. Level is trace, debug, info, warn or error.
type Log struct {
	Level   string `json:"level"`
	Message string `json:"message"`
}

// Emit is an event of the agent's own. Data is any JSON value.
type Emit struct {
	Name string `json:"name"`
	Data Raw    `json:"data,omitempty"`
}

// HTTPRequest asks for an outbound request. Body travels as base64 in JSON.
type HTTPRequest struct {
	Method string      `json:"method"`
	URL    string      `json:"url"`
	Header [][2]string `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// HTTPResponse answers an HTTPRequest.
type HTTPResponse struct {
	Status int         `json:"status"`
	Header [][2]string `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// AgentCall calls a function of another agent of the same app, or a method of one of its instances.
type AgentCall struct {
	Agent    string `json:"agent"`
	Function string `json:"function"`
	Type     string `json:"type,omitempty"` // media type of Input; JSON when empty
	Input    []byte `json:"input,omitempty"`

	Key   string `json:"key,omitempty"`   // of the instance that is called; none is called when it is empty
	Child bool   `json:"child,omitempty"` // the instance is the caller's own: made by this when it is not there, and ended with it
	Send  bool   `json:"send,omitempty"`  // a message to the instance: it takes effect once, later, and the answer is an empty AgentResult
}

// AgentResult is what the called function returned.
type AgentResult struct {
	Type   string `json:"type"`
	Output []byte `json:"output,omitempty"`
}

// ErrorBody is what a guest learns of an error.
type ErrorBody struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Limit   string `json:"limit,omitempty"` // which limit was hit
	Hint    string `json:"hint,omitempty"`  // what to do about it, in a sentence
}
