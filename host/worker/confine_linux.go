package worker

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"time"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// confinable says that this system has what a worker must have: seccomp.
const confinable = true

const (
	nofile    = 1024    // open files: an image each
	addresses = 1 << 44 // bytes of address space: cells reserve much and use little
)

// confiner confines this process. landlocked is set when file access is confined to named places; without that, no file may
// be opened at all.
type confiner struct{ landlocked bool }

// start gives up all that a process needed only to become a worker: the network, other processes, files but
// compiled code, and memory past its limits.
func (c *confiner) start(h hello) (notes []string, err error) {
	for _, l := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, nofile}, {unix.RLIMIT_AS, addresses}, {unix.RLIMIT_DATA, uint64(h.Memory)},
		{unix.RLIMIT_CPU, cpuLimit(h.CPU)},
	} {
		if l.most == 0 && l.resource != unix.RLIMIT_CORE {
			continue
		}
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return nil, fmt.Errorf("limit resource %d: %w", l.resource, err)
		}
	}
	if h.Memory > 0 {
		debug.SetMemoryLimit(h.heap())
	}
	if err := unix.Setpriority(unix.PRIO_PGRP, 0, politeness); err != nil {
		notes = append(notes, "its priority could not be lowered: "+err.Error())
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("forbid tracing: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return nil, fmt.Errorf("drop capabilities: %w", err)
	}
	if err := c.files(h); err != nil {
		notes = append(notes, "no landlock, so it opens no files and compiles what it runs: "+err.Error())
	}
	return notes, c.filter(h.Role)
}

// cpuLimit returns the limit in seconds that leaves so much to this process, whatever it has used to start; 0 for none.
func cpuLimit(more time.Duration) uint64 {
	var used unix.Rusage
	if more == 0 || unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return uint64(more / time.Second)
	}
	return uint64((time.Duration(used.Utime.Nano()+used.Stime.Nano()) + more + time.Second - 1) / time.Second)
}

// dropCapabilities makes root, where the server runs as that, a user like others, in all threads.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// files leaves the directory for compiled code and the Python interpreter, to be read; a process that prepares may
// write compiled code.
func (c *confiner) files(h hello) error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < 1 || h.NoFiles {
		return errors.New("this kernel has none")
	}
	var rules []landlock.Rule
	if h.CacheDir != "" && h.Role == rolePrepare {
		rules = append(rules, landlock.RWDirs(h.CacheDir))
	} else if h.CacheDir != "" {
		rules = append(rules, landlock.RODirs(h.CacheDir))
	}
	if h.Python != "" {
		rules = append(rules, landlock.ROFiles(h.Python))
	}
	if err := landlock.V7.BestEffort().Restrict(rules...); err != nil {
		return err
	}
	c.landlocked = true
	return nil
}

// run gives up writing compiled code, before code is run.
func (c *confiner) run() error { return c.filter(roleWorker) }

// What a worker asks of the kernel: the Go runtime, its network poller on the one connection, and cells' memory.
var calls = []string{
	"read", "write", "readv", "writev", "pread64", "pwrite64", "close", "lseek", "fcntl", "fstat", "ftruncate", "memfd_create",
	"recvmsg", "sendmsg", "recvfrom", "sendto", "shutdown", "getsockopt",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "eventfd2", "pipe2",
	"mmap", "munmap", "mprotect", "mremap", "madvise", "mincore", "brk",
	"futex", "sched_yield", "sched_getaffinity", "nanosleep", "clock_nanosleep", "clock_gettime", "gettimeofday",
	"timer_create", "timer_settime", "timer_delete", "setitimer",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
	"set_robust_list", "rseq", "membarrier", "arch_prctl", "set_tid_address",
	"getpid", "gettid", "getrandom", "getrlimit", "exit", "exit_group",
}

// calls that only a process that prepares makes, to write what it compiled and to tighten its filter.
var writing = []string{
	"rename", "renameat", "renameat2", "unlink", "unlinkat", "fsync", "fchmod", "seccomp", "newfstatat", "getdents64",
}

// filter denies all but those calls, for all threads. Filters add up, and cannot be taken back.
func (c *confiner) filter(r role) error {
	info, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	known := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, ok := info.SyscallNames[n]; return !ok })
	}
	is := func(arg uint32, v uint64) seccomp.ArgumentConditions {
		return seccomp.ArgumentConditions{{Argument: arg, Operation: seccomp.Equal, Value: v}}
	}
	allowed := seccomp.SyscallGroup{Action: seccomp.ActionAllow, Names: known(calls), NamesWithCondtions: []seccomp.NameWithConditions{
		{Name: "clone", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_THREAD}}},
		{Name: "tgkill", Conditions: is(0, uint64(os.Getpid()))},
		{Name: "ioctl", Conditions: is(1, pagemapScan)},
		{Name: "prctl", Conditions: is(0, unix.PR_SET_VMA)},
	}}
	switch {
	case r == rolePrepare:
		allowed.Names = append(allowed.Names, known(writing)...)
		allowed.Names = append(allowed.Names, "openat")
		allowed.NamesWithCondtions = append(allowed.NamesWithCondtions, seccomp.NameWithConditions{
			Name: "prctl", Conditions: is(0, unix.PR_SET_NO_NEW_PRIVS),
		})
	case c.landlocked:
		const writes = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_APPEND | unix.O_PATH | unix.O_TMPFILE&^unix.O_DIRECTORY
		allowed.NamesWithCondtions = append(allowed.NamesWithCondtions, seccomp.NameWithConditions{
			Name: "openat", Conditions: seccomp.ArgumentConditions{{Argument: 2, Operation: seccomp.BitsNotSet, Value: writes}},
		})
	}
	absent := seccomp.SyscallGroup{ // looking for files finds none, instead of failing
		Action: seccomp.ActionErrno | seccomp.Action(syscall.ENOENT),
		Names:  known([]string{"openat", "open", "newfstatat", "stat", "lstat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat"}),
	}
	missing := seccomp.SyscallGroup{Action: seccomp.ActionErrno | seccomp.Action(syscall.ENOSYS), Names: known([]string{"clone3"})}
	return seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true, Flag: seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{allowed, absent, missing},
		},
	})
}

// pagemapScan is the request by which package cell finds the pages a guest wrote.
const pagemapScan = 0xc0606610
