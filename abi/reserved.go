package abi

// Functions that a host calls in every script, although no author has written them: the script guest turns them into calls of
// the author's handlers. A client may name none of them. Input and output are JSON.
const (
	FunctionSetState = "skep:setState" // StateChange -> StateVersion: a client's change of the shared state, with the author's checks
	FunctionConnect  = "skep:connect"  // SocketEvent -> null: onConnect(connection, { request })
	FunctionMessage  = "skep:message"  // SocketEvent -> null: onSocketMessage(connection, data)
	FunctionClose    = "skep:close"    // SocketEvent -> null: onClose(connection, code, reason)
	FunctionRPC      = "skep:rpc"      // RPC -> RPCDone: a client's call of a method over a socket
)

// Reserved reports whether name is one of those functions.
func Reserved(name string) bool {
	switch name {
	case FunctionSetState, FunctionConnect, FunctionMessage, FunctionClose, FunctionRPC:
		return true
	}
	return false
}

// Handler reports whether name is a method of an author's that only the host calls. Such methods are listed among the exports
// of code, so that a host knows which there are without running it; a client may name none of them.
func Handler(name string) bool {
	switch name {
	case "onStart", "onUpgrade", "onAlarm", "onConnect", "onSocketMessage", "onClose", "onStateChanged", "validateStateChange", "initialState":
		return true
	}
	return false
}

// StateChange is a client's change of the shared state.
type StateChange struct {
	State  Raw    `json:"state"`
	Source string `json:"source"`       // id of the connection it came by; the author's hooks get it
	If     *int64 `json:"if,omitempty"` // the version that the state must have
}

// RPC is a client's call of a method by a socket. Method is an export that is no handler; Args are its arguments.
type RPC struct {
	Method     string `json:"method"`
	Args       []Raw  `json:"args,omitempty"`
	Connection string `json:"connection,omitempty"`
	ID         string `json:"id"` // that the client gave the call
}

// RPCDone is what it returned. Of an async generator or a ReadableStream it is what the generator returned, or null: each item
// was sent before to RPC.Connection, as the text {"type":"rpc","id":...,"success":true,"done":false,"result":...}.
type RPCDone struct {
	Done Raw `json:"done"`
}
