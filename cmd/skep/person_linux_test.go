package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// person is a command of the scripts: it runs a program at a terminal, and does there what a file says, line by line:
//
//	see "TEXT"   waits until TEXT has come after what was seen last
//	type "KEYS"  types
//	press "KEY" "TEXT"  presses a key, and again each second, until TEXT has come: what is pressed before a question was read does not count
//	hang up      closes the terminal
//
// These are strings of Go. What was on the terminal goes to standard output, without colours and what moves the cursor; it exits as the program does.
func person() {
	code, err := sitDown(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "person:", err)
		code = 90
	}
	os.Exit(code)
}

// patience bounds how long something is waited for, on a busy machine.
const patience = 2 * time.Minute

// terminal is the other end of what a program takes for a terminal.
type terminal struct {
	*os.File
	mu   sync.Mutex
	text bytes.Buffer // all that was written
	seen int          // of text
	more chan struct{}
	done chan struct{}
}

func sitDown(file string, args []string) (int, error) {
	todo, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	t, tty, err := openTerminal()
	if err != nil {
		return 0, err
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // so that the program does not inherit that it is ignored, as under nohup
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	_ = tty.Close()
	if err != nil {
		return 0, err
	}
	go t.listen()
	for i, line := range strings.Split(strings.TrimSpace(string(todo)), "\n") {
		if err := t.do(line); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return 0, fmt.Errorf("line %d: %s: %w; the terminal has:\n%s", i+1, line, err, t.all())
		}
	}
	err = cmd.Wait()
	<-t.done
	fmt.Print(t.all())
	if _, ok := errors.AsType[*exec.ExitError](err); !ok && err != nil {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

func openTerminal() (*terminal, *os.File, error) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	raw, err := f.SyscallConn() // and not Fd, after which a Close would wait for what reads
	if err != nil {
		return nil, nil, err
	}
	control := func(what uintptr, of unsafe.Pointer) (err error) {
		failed := raw.Control(func(fd uintptr) {
			if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, fd, what, uintptr(of)); e != 0 {
				err = e
			}
		})
		return errors.Join(err, failed)
	}
	var number, locked int32
	size := [4]uint16{24, 100}
	if err := errors.Join(control(syscall.TIOCGPTN, unsafe.Pointer(&number)), control(syscall.TIOCSPTLCK, unsafe.Pointer(&locked)), control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))); err != nil {
		return nil, nil, err
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	return &terminal{File: f, more: make(chan struct{}, 1), done: make(chan struct{})}, tty, err
}

// listen reads what the program writes, until nobody has the terminal any more.
func (t *terminal) listen() {
	defer close(t.done)
	for b := make([]byte, 4096); ; {
		n, err := t.Read(b)
		t.mu.Lock()
		t.text.Write(b[:n])
		t.mu.Unlock()
		select {
		case t.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// all is what was on the terminal.
func (t *terminal) all() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return shown(t.text.String())
}

// shown is text without escapes and returns.
func shown(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\r':
		case text[i] == '\x1b' && i+1 < len(text) && text[i+1] == '[':
			for i += 2; i < len(text) && (text[i] < '@' || text[i] > '~'); i++ {
			}
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

func (t *terminal) do(line string) error {
	what, arg, _ := strings.Cut(line, " ")
	if line == "hang up" {
		return t.Close()
	}
	if what == "press" {
		key, err := strconv.QuotedPrefix(arg)
		if err != nil {
			return err
		}
		text, err := strconv.Unquote(strings.TrimSpace(arg[len(key):]))
		if err != nil {
			return err
		}
		key, _ = strconv.Unquote(key)
		return t.see(text, key)
	}
	text, err := strconv.Unquote(arg)
	if err != nil {
		return err
	}
	switch what {
	case "type":
		_, err := t.WriteString(text)
		return err
	case "see":
		return t.see(text, "")
	}
	return errors.New("there is see, type, press and hang up")
}

// see waits for text. Unless key is empty, it is pressed once a second meanwhile.
func (t *terminal) see(text, key string) error {
	late, again := time.After(patience), time.NewTicker(time.Second)
	defer again.Stop()
	for {
		all := t.all()
		if i := strings.Index(all[t.seen:], text); i >= 0 {
			t.seen += i + len(text)
			return nil
		}
		select {
		case <-t.more:
		case <-t.done:
			if !strings.Contains(t.all()[t.seen:], text) {
				return errors.New("the program ended")
			}
		case <-again.C:
			if _, err := t.WriteString(key); err != nil {
				return err
			}
		case <-late:
			return errors.New("it did not come")
		}
	}
}
