package agent

import (
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// Bounds of logs of calls to models.
const (
	MaxLogDays     = 365
	MaxLogSize     = 64 << 10 // bytes that are kept of a request, and of an answer
	defaultLogSize = 32 << 10
)

// ModelLogging says whether what an app's models are asked, and what they answer, is kept. The ledger has the figures of each call in any case.
type ModelLogging struct {
	App      App       `json:"app"`
	Days     int       `json:"days"`           // how long; 0 means that nothing is kept
	Size     int       `json:"size,omitempty"` // bytes of a request and of an answer, each; 32 KiB unless set
	Changed  time.Time `json:"changed,omitzero"`
	Revision int64     `json:"revision"`
}

// Check returns an Invalid error that names the field unless l can be stored.
func (l *ModelLogging) Check() error {
	switch {
	case l.Days < 0 || l.Days > MaxLogDays:
		return Errorf(Invalid, `field "days" is not from 0 to %d`, MaxLogDays)
	case l.Size < 0 || l.Size > MaxLogSize:
		return Errorf(Invalid, `field "size" is not from 0 to %d`, MaxLogSize)
	}
	return nil
}

// Keep is how many bytes are kept of a request, and of an answer; 0 means that nothing is kept.
func (l *ModelLogging) Keep() int {
	switch {
	case l.Days == 0:
		return 0
	case l.Size == 0:
		return defaultLogSize
	}
	return l.Size
}

// ModelLog is a request to models and its answer: the request as it went to the provider last, the answer as the client got it, both after guardrails and
// without keys of providers.
type ModelLog struct {
	Call      string        `json:"call"` // id of the last call in the ledger
	App       App           `json:"app"`
	Time      time.Time     `json:"time"`
	Agent     string        `json:"agent,omitempty"`
	Session   SessionID     `json:"session,omitempty"`
	Run       RunID         `json:"run,omitempty"`
	Key       string        `json:"key,omitempty"`
	User      string        `json:"user,omitempty"`
	Client    Protocol      `json:"client,omitzero"` // that the client spoke; none for agents
	Asked     string        `json:"asked"`           // the model or route that was asked for
	Provider  string        `json:"provider"`
	Model     string        `json:"model"`
	Route     string        `json:"route,omitempty"`
	Attempts  int           `json:"attempts"` // calls to providers
	Fault     FaultClass    `json:"fault,omitzero"`
	Source    UseSource     `json:"source"`
	Tokens    ModelTokens   `json:"tokens"`
	Micro     *int64        `json:"micro"`
	Took      time.Duration `json:"took"` // nanoseconds in JSON
	Request   string        `json:"request,omitempty"`
	Answer    string        `json:"answer,omitempty"`
	Truncated bool          `json:"truncated,omitempty"` // more was said than is kept
}

// LogName turns the id of a call into a name that sorts the newest first, and back. It is "" for what is no id.
func LogName(call string) string {
	if len(call) != ulid.EncodedSize {
		return ""
	}
	var b strings.Builder
	for i := range len(call) {
		at := strings.IndexByte(ulid.Encoding, call[i])
		if at < 0 {
			return ""
		}
		b.WriteByte(ulid.Encoding[len(ulid.Encoding)-1-at])
	}
	return b.String()
}

// LogNameAt is behind the names of calls from t on, and before those of older ones.
func LogNameAt(t time.Time) string {
	var id ulid.ULID
	if id.SetTime(ulid.Timestamp(t)) != nil {
		return ""
	}
	return LogName(id.String())
}
