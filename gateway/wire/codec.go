package wire

import (
	"net/http"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Op is what is asked of a protocol.
type Op uint8

const (
	NoOp     Op = iota
	Generate    // an answer, whole or streamed
	Count       // how many tokens a request has
	Embed
	List     // the models there are
	Describe // one model
)

// Peek is what the gateway reads of a request without decoding it.
type Peek struct {
	Model     string // as asked for; with Gemini it is in the path
	Stream    bool
	MaxTokens int64 // 0 when not said
	Text      int   // bytes of text in the prompt, roughly, for estimates: content, arguments, schemas; not images
	Media     int   // images and files
	Tools     bool
	User      string
	Signed    bool     // opaque data is in it, so it must go where that came from
	Last      string   // id of the last tool call that the request answers, by which its origin is found; empty when it asks something new
	Calls     []string // ids of all tool calls that were answered so far, by which it is found whose the opaque data is
	Parsed    any      // the codec's own, for its Patch of the same bytes: what it read of them; may be nil
}

// Answers notes that a tool call is answered in the request.
func (p *Peek) Answers(call string) {
	p.Last = call
	p.Calls = append(p.Calls, call)
}

// Target is where a request goes.
type Target struct {
	Model  string
	Origin Origin // opaque data of this origin alone is sent
	Now    time.Time
	Parsed any // Peek's, where the body is the one that it read; else nil
}

// Call is a request to a provider, below its base URL.
type Call struct {
	Path   string // such as /chat/completions
	Query  string
	Header http.Header // what the protocol wants, without the key
	Body   []byte

	// Strip names the frames of the stream that Patch asked for and the client did not, so that they are left out of what it gets (sse.NewFilter does
	// it); the Meter sees them all the same. nil when there are none. A frame with other content in it is never named.
	Strip func(name string, data []byte) bool
}

// Codec is a protocol. It has no state, and its methods may be used at once. Methods that read bytes of others bound what they keep, never panic,
// and return an *agent.Error of kind Invalid that names the field.
type Codec interface {
	Protocol() agent.Protocol

	// Peek reads a request, which is a JSON object. path is what follows /ai, such as /v1beta/models/m:generateContent; in Peek and Decode it may
	// end with ?QUERY, which says in which form Gemini's clients want a stream (alt=sse).
	Peek(op Op, path string, body []byte) (Peek, error)
	// Patch returns the call that passes a request on to a provider of the same protocol: the bytes of body with the fields changed that
	// the gateway owns: the model, if it differs, and what makes usage be told in a stream. header is what the client sent, of which those are
	// passed on that the protocol knows (versions, betas), and no key, cookie or hop-by-hop field.
	Patch(op Op, path, query string, header http.Header, body []byte, to Target) (Call, error)
	// Meter reads what a provider of the protocol answers to a passed request.
	Meter(stream bool) Meter

	// Decode reads a request of a client.
	Decode(op Op, path string, header http.Header, body []byte) (*Request, error)
	// Encode makes a request to a provider. It refuses what the protocol has no word for, and drops opaque data of another origin.
	Encode(op Op, r *Request, to Target) (Call, error)

	// DecodeAnswer reads a provider's whole answer; from is where it came from, for opaque data.
	DecodeAnswer(body []byte, from Origin) (*Answer, error)
	// EncodeAnswer makes what a client of the protocol expects as the answer to r.
	EncodeAnswer(a *Answer, r *Request) ([]byte, error)
	// Decoder reads a provider's stream.
	Decoder(from Origin) Decoder
	// Encoder makes a stream for a client that asked r.
	Encoder(r *Request) Encoder

	// DecodeFault reads an answer that is an error.
	DecodeFault(status int, header http.Header, body []byte) *Fault
	// EncodeFault makes what a client expects as the error f.
	EncodeFault(f *Fault) (status int, header http.Header, body []byte)
	// BrokenFrame is the last thing that a client of a passed or encoded stream gets when the stream breaks: the protocol's error frame.
	BrokenFrame(f *Fault) []byte
	// Key puts a provider's key where the protocol has it.
	Key(h http.Header, key string)
}

// Meter reads a passed answer as it goes by. It keeps at most one frame, of at most MaxFrame bytes.
type Meter interface {
	// Write takes the next bytes. It never fails; what cannot be read is passed on unread.
	Write(p []byte)
	// State tells what was read until now.
	State() MeterState
}

// Said is a piece of a text that comes in pieces.
type Said struct {
	Kind  PartKind // of text, of thoughts, of refusals, or of a call's arguments
	Index int      // of the call, or whatever else tells such texts apart in the stream
	Field string   // of the JSON in which Text is a string
	Text  string   // good until the listener returns
}

// Teller is a Meter of streams that tells what it reads. Tell is called before the first Write.
type Teller interface{ Tell(func(Said)) }

// MeterState is what a Meter knows.
type MeterState struct {
	Content bool   // something that the model said has come
	Ended   bool   // the protocol's terminator has come, or a whole body that is complete
	Fault   *Fault // an error came within the stream
	Usage   Usage
	Model   string
	ID      string
	Stop    Stop
	Chars   int      // bytes of text, thoughts and arguments that have come, for estimates
	Calls   []string // ids of tool calls, by which their origin is found later; at most 128
	Signed  bool     // opaque data has come
	Tier    string   // what was told of the service tier, for the price; may be empty
}

// Decoder reads the frames of a provider's stream.
type Decoder interface {
	// Frame takes one frame: an event of server-sent events, with its name, if any, and its data. It returns the events that it makes. After
	// End or Broken it returns none. The list, not what is in it, is valid until the next call of the decoder.
	Frame(name string, data []byte) []Event
	// Close tells that the stream has ended. It returns Broken when the terminator had not come.
	Close() []Event
}

// Encoder makes a client's stream.
type Encoder interface {
	// ContentType of the stream.
	ContentType() string
	// Append appends what e is in the protocol, which may be nothing, to b.
	Append(b []byte, e Event) []byte
}

// MaxFrame bounds a frame of a stream, in bytes.
const MaxFrame = 8 << 20
