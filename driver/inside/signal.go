package inside

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/skep-dev/skep/agent"
)

// signals are those that a command can name.
var signals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1,
	"USR2": syscall.SIGUSR2, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "TSTP": syscall.SIGTSTP, "ABRT": syscall.SIGABRT, "PIPE": syscall.SIGPIPE,
	"ALRM": syscall.SIGALRM, "SEGV": syscall.SIGSEGV, "BUS": syscall.SIGBUS, "FPE": syscall.SIGFPE, "ILL": syscall.SIGILL, "WINCH": syscall.SIGWINCH,
}

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
