package sockets

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/ws"
)

// Types of the JSON text frames of the protocol. Those that begin with cf_, and rpc, are those of Cloudflare's package "agents".
const (
	typeIdentity   = "cf_agent_identity"
	typeState      = "cf_agent_state"
	typeStateError = "cf_agent_state_error"
	typeRPC        = "rpc"

	typeHello        = "skep_hello"
	typeReady        = "skep_ready"
	typePatch        = "skep_state_patch"
	typeStateSet     = "skep_state_set" // a client's change was made
	typeStateRefused = "skep_state_refused"
	typeEvent        = "skep_event"
	typeError        = "skep_error"
)

// In is a frame of a client that the protocol is about.
type In struct {
	Hello *Hello
	State *StateIn
	RPC   *abi.RPC // without its connection
}

// Hello is how a client says that it takes patches, and where it was when it was connected before.
type Hello struct {
	Events bool `json:"events"` // whether it wants the events that the instance emits
	Resume *struct {
		Life   int64  `json:"life"`   // as the frame skep_ready told it
		State  int64  `json:"state"`  // the version that it has
		Events *int64 `json:"events"` // the number of the last event that it saw
	} `json:"resume"`
}

// StateIn is a client's change of the whole state.
type StateIn struct {
	State   abi.Raw         `json:"state"`
	Version *int64          `json:"version"` // that the state must have; nil means any
	ID      json.RawMessage `json:"id"`      // that the client gave the change; it is in the answer
}

var (
	ping    = []byte(`{"type":"ping"}`)
	pong    = ws.Text([]byte(`{"type":"pong"}`))
	typeTag = []byte(`"type"`)
)

// Pong returns the answer to a message that is a ping, {"type":"ping"}.
func Pong(m ws.Message) (ws.Frame, bool) {
	return pong, !m.Binary && len(m.Data) <= 2*len(ping) && bytes.Equal(bytes.Join(bytes.Fields(m.Data), nil), ping)
}

// Parse reads a message. It returns false when the protocol is not about it: then it is the instance's own.
func Parse(m ws.Message) (In, bool) {
	if m.Binary || !bytes.HasPrefix(bytes.TrimLeft(m.Data, " \t\r\n"), []byte("{")) || !bytes.Contains(m.Data, typeTag) {
		return In{}, false
	}
	var head struct {
		Type   string          `json:"type"`
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
		Args   []abi.Raw       `json:"args"`
	}
	if json.Unmarshal(m.Data, &head) != nil {
		return In{}, false
	}
	switch head.Type {
	case typeHello:
		in := In{Hello: &Hello{}}
		return in, json.Unmarshal(m.Data, in.Hello) == nil
	case typeState:
		in := In{State: &StateIn{}}
		return in, json.Unmarshal(m.Data, in.State) == nil && in.State.State != nil
	case typeRPC:
		var id string
		if head.Method == nil || json.Unmarshal(head.ID, &id) != nil {
			return In{}, false
		}
		return In{RPC: &abi.RPC{Method: *head.Method, Args: head.Args, ID: id}}, true
	}
	return In{}, false
}

func frame(v any) ws.Frame {
	b, err := json.Marshal(v)
	if err != nil {
		panic("sockets: " + err.Error())
	}
	return ws.Text(b)
}

// Identity is the first frame of a connection.
func Identity(name, key string, stateFollows bool) ws.Frame {
	return frame(struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		Agent   string `json:"agent"`
		Follows bool   `json:"stateFollows,omitempty"`
	}{typeIdentity, key, name, stateFollows})
}

// State is the whole state.
func State(s abi.Shared) ws.Frame {
	return frame(struct {
		Type    string  `json:"type"`
		State   abi.Raw `json:"state"`
		Version int64   `json:"version"`
	}{typeState, s.State, s.Version})
}

// Ready answers a Hello. Life tells one instance from another of the same key.
func Ready(life time.Time, version, events int64) ws.Frame {
	return frame(struct {
		Type    string `json:"type"`
		Life    int64  `json:"life"`
		Version int64  `json:"version"`
		Events  int64  `json:"events"`
	}{typeReady, life.UnixMilli(), version, events})
}

// StateSet tells a client that its change was made.
func StateSet(id json.RawMessage, version int64) ws.Frame {
	return frame(struct {
		Type    string          `json:"type"`
		ID      json.RawMessage `json:"id,omitempty"`
		Version int64           `json:"version"`
	}{typeStateSet, id, version})
}

// StateRefused tells a client that its change was not made, and what the state is.
func StateRefused(id json.RawMessage, now abi.Shared, err error) ws.Frame {
	return frame(struct {
		Type    string          `json:"type"`
		ID      json.RawMessage `json:"id,omitempty"`
		Version int64           `json:"version"`
		State   abi.Raw         `json:"state,omitempty"`
		Kind    agent.Kind      `json:"kind"`
		Error   string          `json:"error"`
	}{typeStateRefused, id, now.Version, now.State, agent.KindOf(err), Words(err)})
}

// StateError is StateRefused for clients of Cloudflare's package.
func StateError(err error) ws.Frame {
	return frame(struct {
		Type  string `json:"type"`
		Error string `json:"error"`
	}{typeStateError, Words(err)})
}

// Event is an event of the instance, as its JSON form.
func Event(event json.RawMessage) ws.Frame {
	b := make([]byte, 0, len(event)+40)
	b = append(b, `{"type":"`+typeEvent+`","event":`...)
	return ws.Text(append(append(b, event...), '}'))
}

// Trouble tells a client that has said hello of a message that the instance failed to take.
func Trouble(err error) ws.Frame {
	return frame(struct {
		Type  string     `json:"type"`
		Kind  agent.Kind `json:"kind"`
		Error string     `json:"error"`
	}{typeError, agent.KindOf(err), Words(err)})
}

// Result and Failure end a call.
func Result(id string, result abi.Raw) ws.Frame {
	if len(result) == 0 {
		result = abi.Raw("null")
	}
	return frame(struct {
		Type    string  `json:"type"`
		ID      string  `json:"id"`
		Success bool    `json:"success"`
		Result  abi.Raw `json:"result"`
		Done    bool    `json:"done"`
	}{typeRPC, id, true, result, true})
}

func Failure(id string, err error) ws.Frame {
	e := agent.AsError(err)
	return frame(struct {
		Type    string     `json:"type"`
		ID      string     `json:"id"`
		Success bool       `json:"success"`
		Error   string     `json:"error"`
		Kind    agent.Kind `json:"kind"`
		Hint    string     `json:"hint,omitempty"`
	}{typeRPC, id, false, Words(err), e.Kind, e.Hint})
}

// IsItem reports whether a text that code sends is an item of the call with that id.
func IsItem(text, id string) bool {
	var head struct {
		Type string `json:"type"`
		ID   string `json:"id"`
		Done *bool  `json:"done"`
	}
	const begin = `{"type":"rpc"`
	return id != "" && len(text) > len(begin) && text[:len(begin)] == begin &&
		json.Unmarshal([]byte(text), &head) == nil && head.ID == id && head.Done != nil && !*head.Done
}

// Words is what a client is told of an error.
func Words(err error) string { return agent.AsError(err).Msg }
