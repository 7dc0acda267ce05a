package inside

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signals are those that a command can name.
var signals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1,
	"USR2": syscall.SIGUSR2, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "TSTP": syscall.SIGTSTP, "ABRT": syscall.SIGABRT, "PIPE": syscall.SIGPIPE,
	"ALRM": syscall.SIGALRM, "SEGV": syscall.SIGSEGV, "BUS": syscall.SIGBUS, "FPE": syscall.SIGFPE, "ILL": syscall.SIGILL, "WINCH": syscall.SIGWINCH,
}

func sendSignal(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

// attributes puts a process into a group of its own, which the kernel ends with the driver.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// preferToEnd has the kernel, when the box has no memory left, end a process and what it starts rather than the driver, which can say so then. See
// proc_pid_oom_score_adj(5). A process that has ended meanwhile needs none of it.
func preferToEnd(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("500"), 0)
}

// awaitExit returns when a child has exited, and leaves it to be reaped: until then nothing else can get its number, so that its group can be signalled.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// Adopt makes the calling process the parent of what its descendants leave behind, and keeps other processes of the same user from looking into it.
func Adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// children lists the children of this process and whether they are dead.
func children() map[int]bool {
	out := map[int]bool{}
	self := strconv.Itoa(os.Getpid())
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		i := strings.LastIndex(string(b), ") ") // PID (NAME) STATE PPID ...: see proc_pid_stat(5); a name may have parentheses of its own
		fields := strings.Fields(string(b)[i+1:])
		if len(fields) < 2 || fields[1] != self {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			out[pid] = fields[0] == "Z"
		}
	}
	return out
}

// reap takes leave of a dead child that nobody waits for.
func reap(pid int) {
	var status unix.WaitStatus
	_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil)
}
