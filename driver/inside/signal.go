package inside

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/skep-dev/skep/agent"
)

func signalOf(name string) (syscall.Signal, error) {
	sig, ok := signals[strings.TrimPrefix(name, "SIG")]
	if !ok {
		return 0, &agent.Error{Kind: agent.Invalid, Msg: "no signal is called " + strconv.Quote(name), Hint: "such as INT, TERM or KILL"}
	}
	return sig, nil
}

func signalName(sig syscall.Signal) string {
	for name, s := range signals {
		if s == sig {
			return name
		}
	}
	return strconv.Itoa(int(sig))
}
