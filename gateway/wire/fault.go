package wire

import (
	"fmt"
	"net/http"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Fault is a failed call to a provider, classified, or a refusal of the gateway's own.
type Fault struct {
	Class   agent.FaultClass
	Status  int    // HTTP status of the provider's answer, or the one to answer with; 0 when there was none
	Type    string // the provider's own names for it
	Code    string
	Message string // for whoever made the request; no key is in it
	Param   string // the field, if known
	Request string // the provider's id of the request

	After  time.Duration // when trying again makes sense; 0 means unknown
	Final  *bool         // the provider said whether to try again (x-should-retry)
	Header http.Header   // of the provider's answer that are passed on: Retry-After, rate limit fields
	Own    bool          // the gateway's own refusal
}

func (f *Fault) Error() string {
	if f.Status != 0 {
		return fmt.Sprintf("%s (%s, HTTP status %d)", f.Message, f.Class, f.Status)
	}
	return fmt.Sprintf("%s (%s)", f.Message, f.Class)
}
