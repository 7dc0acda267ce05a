package inside

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/driver"
)

// facts returns what the driver sees of its box.
func facts() driver.Facts {
	f := driver.Facts{UID: os.Getuid()}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapEff":
			f.Capabilities = value
		case "NoNewPrivs":
			f.NoNewPrivs = value == "1"
		case "Seccomp":
			f.Seccomp, _ = strconv.Atoi(value)
		}
	}
	var names []string
	if list, err := net.Interfaces(); err == nil {
		for _, i := range list {
			names = append(names, i.Name)
		}
	}
	f.Interfaces = strings.Join(names, " ")
	f.Memory = firstNumber(cgroupFiles("memory", "memory.max", "memory.limit_in_bytes"))
	f.Pids = firstNumber(cgroupFiles("pids", "pids.max", "pids.max"))
	return f
}

// cgroupFiles returns where a file of the own cgroup may be, in the order in which to look: of version 2 it is v2, and of version 1, below the controller,
// v1. A box that sees its own cgroup as the root has it at the root, whatever /proc says.
func cgroupFiles(controller, v2, v1 string) []string {
	const root = "/sys/fs/cgroup"
	own, _ := os.ReadFile("/proc/self/cgroup")
	var out []string
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // ID:CONTROLLERS:PATH (cgroups(7))
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[1] == "":
			out = append(out, filepath.Join(root, parts[2], v2), filepath.Join(root, v2))
		case strings.Contains(","+parts[1]+",", ","+controller+","):
			out = append(out, filepath.Join(root, controller, parts[2], v1), filepath.Join(root, controller, v1))
		}
	}
	return out
}

// firstNumber returns the number in the first of the files that there is; 0 for max, for what is beyond any machine, and for nothing.
func firstNumber(files []string) int64 {
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || n > 1<<50 {
			return 0
		}
		return n
	}
	return 0
}

// oomKills returns how many processes of the own cgroup the kernel has ended for want of memory.
func oomKills() int64 {
	for _, name := range cgroupFiles("memory", "memory.events", "memory.oom_control") {
		if b, err := os.ReadFile(name); err == nil {
			return oomCount(string(b))
		}
	}
	return 0
}

// oomCount reads the line "oom_kill N", which both versions have.
func oomCount(text string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}
