//go:build linux

// Command box is the driver of the boxes of package sandboxtest. It says what it finds in the box, and tries to do there what a box must not let it do. It
// speaks JSON at the Unix socket of the box: a Hello, then a Reply to each Ask.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Hello is what a box says first.
type Hello struct {
	Boot string `json:"boot"` // all of its standard input
	Args []string
	Env  []string
	Dir  string
}

// Ask is one thing to do, and Reply what came of it.
type (
	Ask struct {
		Do   string   `json:"do"`
		Args []string `json:"args"`
	}
	Reply struct {
		Text  string            `json:"text"`
		Error string            `json:"error"`
		Facts map[string]string `json:"facts"`
		List  []string          `json:"list"`
	}
)

func main() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		helper(os.Args[1])
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	go func() {
		for range terms {
			if len(os.Args) < 2 || os.Args[1] != "-stubborn" {
				os.Exit(7)
			}
		}
	}()
	boot, err := io.ReadAll(os.Stdin)
	if err != nil {
		fatal(err)
	}
	conn, err := net.Dial("unix", "/run/skep/skep.sock")
	if err != nil {
		fatal(err)
	}
	dir, _ := os.Getwd()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	if err := out.Encode(Hello{Boot: string(boot), Args: os.Args[1:], Env: os.Environ(), Dir: dir}); err != nil {
		fatal(err)
	}
	for {
		var ask Ask
		if err := in.Decode(&ask); err != nil {
			time.Sleep(time.Hour) // nobody asks any more: wait to be stopped
		}
		if err := out.Encode(do(ask)); err != nil {
			fatal(err)
		}
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "box:", err)
	os.Exit(1)
}

func do(ask Ask) Reply {
	switch ask.Do {
	case "look":
		return look()
	case "writable":
		return Reply{List: writable()}
	case "processes":
		return Reply{List: processes()}
	case "write":
		return reply("", os.WriteFile(ask.Args[0], []byte(ask.Args[1]), 0o600))
	case "read":
		b, err := os.ReadFile(ask.Args[0])
		return reply(string(b), err)
	case "remove":
		return reply("", os.Remove(ask.Args[0]))
	case "stat":
		_, err := os.Stat(ask.Args[0])
		return reply("", err)
	case "fill":
		return fill(ask.Args[0])
	case "dial":
		return dial(ask.Args[0], ask.Args[1])
	case "gain":
		return gain()
	case "run": // one of the helpers, in a process of its own
		out, err := exec.Command("/proc/self/exe", ask.Args...).CombinedOutput()
		return reply(string(out), err)
	case "build": // a program in a folder, and run it
		return build(ask.Args[0])
	case "say":
		_, err := fmt.Fprintln(os.Stderr, strings.Join(ask.Args, " "))
		return reply("", err)
	case "exit":
		code, _ := strconv.Atoi(ask.Args[0])
		os.Exit(code)
	case "eat":
		eat()
	}
	return Reply{Error: "no such thing to do: " + ask.Do}
}

func build(file string) Reply {
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(file, b, 0o700)
	}
	if err != nil {
		return reply("", err)
	}
	defer os.Remove(file)
	out, err := exec.Command(file, "hello").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		err = nil
	}
	return reply(string(out), err)
}

func reply(text string, err error) Reply {
	if err != nil {
		return Reply{Text: text, Error: err.Error()}
	}
	return Reply{Text: text}
}

// look reads what the kernel says of this process, and of the network that it has.
func look() Reply {
	facts := map[string]string{"uid": fmt.Sprint(os.Getuid()), "gid": fmt.Sprint(os.Getgid())}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return reply("", err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		facts[name] = strings.TrimSpace(value)
	}
	nets, err := net.Interfaces()
	if err != nil {
		return reply("", err)
	}
	var names []string
	for _, n := range nets {
		names = append(names, n.Name)
	}
	return Reply{Facts: facts, List: names}
}

// writable tries to make a file in each folder that there is, and lists the topmost in which it could.
func writable() []string {
	var found []string
	filepath.WalkDir("/", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if path == "/proc" || path == "/sys" {
			return filepath.SkipDir // of the kernel: tried by name, in gain
		}
		f, err := os.CreateTemp(path, "try")
		if err != nil {
			return nil
		}
		f.Close()
		os.Remove(f.Name())
		found = append(found, path)
		return filepath.SkipDir
	})
	return found
}

// processes lists what can be seen of all processes: what they were called with, and their environment.
func processes() []string {
	var found []string
	for _, name := range []string{"cmdline", "environ"} {
		files, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, f := range files {
			b, _ := os.ReadFile(f)
			found = append(found, f+" "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// fill writes until nothing more fits, says how many bytes did, and removes them.
func fill(path string) Reply {
	f, err := os.Create(path)
	if err != nil {
		return reply("", err)
	}
	defer os.Remove(path)
	defer f.Close()
	block, total := make([]byte, 64<<10), 0
	for total < 64<<20 {
		n, err := f.Write(block)
		total += n
		if err != nil {
			return reply(fmt.Sprint(total), err)
		}
	}
	return Reply{Text: fmt.Sprint(total)}
}

func dial(network, address string) Reply {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return reply("", err)
	}
	c.Close()
	return Reply{Text: "connected"}
}

// gain tries to get more than it has, and lists what it got.
func gain() Reply {
	tries := []struct {
		name string
		try  func() error
	}{
		{"be root", func() error { return syscall.Setuid(0) }},
		{"mount a file system", func() error { return syscall.Mount("none", "/tmp", "tmpfs", 0, "") }},
		{"write the root again", func() error { return syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND, "") }},
		{"write the socket's folder again", func() error { return syscall.Mount("", "/run/skep", "", syscall.MS_REMOUNT|syscall.MS_BIND, "") }},
		{"make a user namespace", func() error { return syscall.Unshare(syscall.CLONE_NEWUSER) }},
		{"change root", func() error { return syscall.Chroot("/tmp") }},
		{"make a device", func() error { return syscall.Mknod("/tmp/null", syscall.S_IFCHR|0o666, 0x103) }},
		{"name the host", func() error { return syscall.Sethostname([]byte("mine")) }},
		{"set the clock", func() error { return syscall.Settimeofday(&syscall.Timeval{}) }},
		{"set the kernel", func() error { return os.WriteFile("/proc/sys/kernel/core_pattern", []byte("|/tmp/x"), 0) }},
		{"reboot by sysrq", func() error { return os.WriteFile("/proc/sysrq-trigger", []byte("h"), 0) }},
		{"widen its cgroup", func() error { return os.WriteFile("/sys/fs/cgroup/pids/pids.max", []byte("max"), 0) }},
		{"widen its cgroup v2", func() error { return os.WriteFile("/sys/fs/cgroup/pids.max", []byte("max"), 0) }},
		{"send raw packets", func() error { return rawSocket() }},
	}
	var r Reply
	for _, t := range tries {
		if t.try() == nil {
			r.List = append(r.List, t.name)
		}
	}
	return r
}

func rawSocket() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP)
	if err == nil {
		syscall.Close(fd)
	}
	return err
}

func eat() {
	var all [][]byte
	for range 1 << 10 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
	}
	fmt.Println("ate", len(all), "MiB")
}

// helper is a program beside the driver.
func helper(name string) {
	switch name {
	case "sleep":
		time.Sleep(time.Hour)
	case "eat":
		eat()
	case "hello":
		fmt.Println("out")
		fmt.Fprintln(os.Stderr, "err")
		os.Exit(3)
	case "bomb":
		bomb()
	}
	os.Exit(0)
}

// bomb starts processes until one cannot be started, or there are far too many. They end with it.
func bomb() {
	for n := range 300 {
		c := exec.Command("/proc/self/exe", "sleep")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			fmt.Println(n, "processes:", err)
			os.Exit(0)
		}
	}
	fmt.Println("no limit")
}
