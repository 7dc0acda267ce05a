// Package driver is what the control plane and the driver of a sandbox say to each other. The driver is the main process of a box; it knows how to run a
// vendor's command-line agent (package backend), programs, files and git, and dials out by the one Unix socket that it is given.
//
// The driver opens a WebSocket at Path. Each message is a Message as JSON. It says hello with the token of its boot payload, which counts once, and is
// welcomed with a key for later connections. Events are numbered by the driver without a gap, and sent again after a lost connection until they are
// acknowledged; what acknowledges them has stored them. Commands are numbered by the control plane; one that is sent again is answered again, and not
// carried out again, as long as the driver lives. Bytes of programs, files and ports flow beside, each in a connection of its own: see Stream and Conn.
// docs/design/driver.md says why.
package driver

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Version is that of the protocol. A driver and a control plane that differ do not speak.
const Version = 1

// Paths of the control plane at the socket of a box.
const (
	Path       = "/driver"         // WebSocket
	StreamPath = "/driver/stream/" // StreamPath + Stream.ID: a POST with "Upgrade: skep-stream", then bytes both ways as Conn frames them
	ModelPath  = "/ai"             // the gateway of models, as the API has it at /ai, for who has Welcome.ModelKey
)

// StreamProtocol is what the Upgrade header of a stream says.
const StreamProtocol = "skep-stream"

// Times of a connection.
const (
	HeartbeatEvery = 10 * time.Second
	LostAfter      = 60 * time.Second // without a word the control plane takes a driver for lost
	TokenLife      = 5 * time.Minute  // of a boot token
)

// Bounds.
const (
	MaxMessage = 1 << 20  // bytes of a Message
	MaxBatch   = 64       // events
	MaxWindow  = 4        // batches that a driver has sent and that are not acknowledged
	MaxEvent   = 64 << 10 // bytes of an event's data; longer texts are cut, and say so
	RingBytes  = 16 << 20 // of events that wait to be acknowledged; a CLI whose events are more waits
)

// Boot is what a box is given once, on the standard input of its main process, as one line of JSON.
type Boot struct {
	Version    int             `json:"version"`
	Sandbox    agent.SandboxID `json:"sandbox"`
	Generation int64           `json:"generation"`
	Socket     string          `json:"socket"`            // path of the Unix socket within the box
	Token      string          `json:"token"`             // for one hello
	Relay      string          `json:"relay,omitempty"`   // address at which the driver relays TCP connections to the socket; RelayAddr unless given
	TraceID    string          `json:"trace,omitempty"`   // traceparent (W3C Trace Context) of what asked for the box
	CA         string          `json:"ca,omitempty"`      // PEM of the authority that signs what the way out shows; it goes below the home, and is named by SSL_CERT_FILE and its like
	Workdir    string          `json:"workdir,omitempty"` // sandbox.Workspace unless given
}

// RelayAddr is where, within the box, programs reach the gateway of models and the proxy of the way out.
const RelayAddr = "127.0.0.1:18080"

// Kinds of messages.
const (
	Hello     = "hello"     // from the driver, first: HelloBody
	Welcome   = "welcome"   // the answer: WelcomeBody
	Refused   = "refused"   // the answer to who is not known, or not any more: Fault; the driver ends
	Ready     = "ready"     // from the driver, after what Welcome asked for is done
	Heartbeat = "heartbeat" // from the driver, and the answer
	Events    = "events"    // from the driver: EventsBody
	Ack       = "ack"       // Seq: all events up to it are stored
	Command   = "command"   // ID, Name, Body
	Reply     = "reply"     // from the driver: ID of the command, Body or Fault
	Bye       = "bye"       // from either: no reconnection is to be awaited; Fault says why unless all is well
)

// Message is one message.
type Message struct {
	Kind  string          `json:"kind"`
	ID    uint64          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Seq   int64           `json:"seq,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
	Fault *Fault          `json:"fault,omitempty"`
	Trace string          `json:"trace,omitempty"` // traceparent of a command
}

// Fault is why something failed.
type Fault struct {
	Kind    agent.Kind `json:"kind"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}

func (f *Fault) Error() string { return f.Message }

// Err returns f as an error of the vocabulary, or nil.
func (f *Fault) Err() error {
	if f == nil {
		return nil
	}
	return &agent.Error{Kind: f.Kind, Msg: f.Message, Hint: f.Hint}
}

// FaultOf says in a Fault what err is, or nil. What a box's system says is no error of ours: it is Failed.
func FaultOf(err error) *Fault {
	if err == nil {
		return nil
	}
	var e *agent.Error
	if !errors.As(err, &e) {
		return &Fault{Kind: agent.Failed, Message: err.Error()}
	}
	return &Fault{Kind: e.Kind, Message: e.Error(), Hint: e.Hint}
}

// HelloBody is who the driver is.
type HelloBody struct {
	Version    int             `json:"version"`
	Sandbox    agent.SandboxID `json:"sandbox"`
	Generation int64           `json:"generation"`
	Token      string          `json:"token,omitempty"` // of the boot payload, until a Welcome came
	Nonce      string          `json:"nonce,omitempty"` // with Token: made by the driver at its start; the token counts for the first nonce alone
	Key        string          `json:"key,omitempty"`   // of WelcomeBody, each time after
	Driver     string          `json:"driver"`          // its version
	CLIs       []Inventory     `json:"clis,omitempty"`  // that are in the box
	Seq        int64           `json:"seq"`             // newest event
	Facts      Facts           `json:"facts"`
}

// Inventory is a CLI that a box has.
type Inventory struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
}

// Facts are what the driver sees of its box, for the log.
type Facts struct {
	UID          int    `json:"uid"`
	Capabilities string `json:"capabilities"` // CapEff of /proc/self/status
	NoNewPrivs   bool   `json:"no_new_privs"`
	Seccomp      int    `json:"seccomp"`
	Memory       int64  `json:"memory,omitempty"` // bytes that its cgroup allows; 0 when it cannot be told
	Pids         int64  `json:"pids,omitempty"`
	Interfaces   string `json:"interfaces"` // names, with a space between
}

// WelcomeBody is what a driver is told when it is let in.
type WelcomeBody struct {
	Key      string            `json:"key"`
	Acked    int64             `json:"acked"`               // newest event that is stored
	Env      map[string]string `json:"env,omitempty"`       // of what runs in the box
	ModelKey string            `json:"model_key,omitempty"` // for the gateway at ModelPath; valid for this box only, while its run lives
}

// EventsBody is a batch of events. The first has number First.
type EventsBody struct {
	First int64   `json:"first"`
	List  []Event `json:"list"`
}

// Stream is a connection beside the WebSocket, which the driver opens when a command tells it to.
type Stream struct {
	ID  string `json:"id"`  // of StreamPath, random
	Key string `json:"key"` // to be sent as a bearer token
}
