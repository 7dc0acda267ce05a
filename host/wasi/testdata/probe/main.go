// A command that looks for the machine it runs on and prints what it found, a line each.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
)

func main() {
	say("args %d env %d", len(os.Args), len(os.Environ()))

	for _, p := range []string{"/", ".", "/etc/passwd", "/dev/urandom", "/proc/self/environ"} {
		_, err := os.Open(p)
		try("open "+p, err)
		_, err = os.Stat(p)
		try("stat "+p, err)
	}
	_, err := os.Create("/tmp/x")
	try("create", err)
	try("mkdir", os.Mkdir("/tmp/d", 0o700))
	try("rename", os.Rename("/a", "/b"))
	try("symlink", os.Symlink("/a", "/b"))
	try("remove", os.Remove("/a"))
	_, err = os.ReadDir("/")
	try("readdir", err)

	_, err = net.Dial("tcp", "127.0.0.1:80")
	try("dial", err)
	for fd := 3; fd < 8; fd++ {
		_, err := syscall.Read(fd, make([]byte, 1))
		say("read %d: %v", fd, err)
	}

	in, err := io.ReadAll(os.Stdin)
	say("stdin %d %v", len(in), err)
	_, err = os.Stdout.Seek(0, io.SeekEnd)
	try("seek", err)
	info, err := os.Stdout.Stat()
	say("stat stdout %v %v", info.Mode()&os.ModeCharDevice != 0, err)

	before := time.Now()
	time.Sleep(3 * time.Millisecond)
	runtime.Gosched()
	say("slept %v, year %d", time.Since(before) >= 3*time.Millisecond, before.UTC().Year())

	w := bufio.NewWriter(os.Stderr)
	_, _ = fmt.Fprintf(w, "to stderr\r\n\nhalf a ")
	_ = w.Flush()
	fmt.Print("no newline")
	_, _ = fmt.Fprint(os.Stderr, "line")
	os.Exit(3)
}

func try(what string, err error) {
	if err == nil {
		say("%s worked", what)
	} else {
		say("%s failed", what)
	}
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
