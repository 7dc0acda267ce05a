package wire

import "time"

// Counter is a Codec that can ask how many tokens a request has, and answer it.
type Counter interface {
	DecodeCount(body []byte) (int64, error)
	EncodeCount(tokens int64) []byte
}

// ModelInfo is a model as lists show it.
type ModelInfo struct {
	ID      string
	Name    string // for people; ID unless set
	Owner   string
	Created time.Time
	Input   int64 // most tokens in a prompt; 0 when not known
	Output  int64 // most tokens in an answer
}

// Lister is a Codec that has a form for models.
type Lister interface {
	EncodeModels(m []ModelInfo) []byte
	EncodeModel(m ModelInfo) []byte
}

// Breaker is a Meter that knows how the stream that has gone by ends with an error: what a client gets then depends on the form of the stream and on
// where it was cut. Without it, BrokenFrame of the Codec is the last frame.
type Breaker interface {
	Broken(f *Fault) []byte
}
