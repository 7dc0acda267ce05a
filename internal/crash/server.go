package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skep-dev/skep/api/client"
)

// server is skep serve on one data directory and one address, again and again.
type server struct {
	program, dir string
	flags        []string
	memory       int64  // MiB
	group        string // control group for that

	addr   string
	token  string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has; nil before the first
	err    error         // of its end
	stderr bytes.Buffer
}

// start starts the server and returns when it says that it is ready.
func (s *server) start(ctx context.Context) error {
	if s.addr == "" {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s.addr = ln.Addr().String()
		if err := ln.Close(); err != nil {
			return err
		}
	}
	args := append([]string{"serve", "--json", "--listen", s.addr, "--data", s.dir, "--egress-allow", "127.0.0.1"}, s.flags...)
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env = append(os.Environ(), "SKEP_VAULT_KEY=file:"+s.dir+".vault-key")
	s.stderr.Reset()
	cmd.Stderr = &s.stderr
	if s.memory > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GOMEMLIMIT=%dMiB", s.memory*2/3))
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd // not before: what was started earlier has ended
	ready, ended := make(chan error, 1), make(chan struct{})
	var info struct {
		TokenFile string `json:"token_file"`
	}
	s.ended = ended
	go func() {
		defer close(ended)
		ready <- json.NewDecoder(stdout).Decode(&info)
		_, _ = io.Copy(io.Discard, stdout)
		s.err = cmd.Wait()
	}()
	if s.memory > 0 {
		if err := confine(s.group, s.cmd.Process.Pid, s.memory<<20); err != nil {
			s.kill()
			return err
		}
	}
	select {
	case err = <-ready:
	case <-time.After(patience):
		err = errors.New("it says nothing")
	}
	if err != nil {
		s.kill()
		return fmt.Errorf("skep serve did not start: %w: %s", err, s.stderr.Bytes())
	}
	token, err := os.ReadFile(info.TokenFile)
	s.token = strings.TrimSpace(string(token))
	return err
}

// kill ends the server at once. It reports whether it had ended by itself.
func (s *server) kill() (byItself bool) {
	if s.ended == nil {
		return true
	}
	select {
	case <-s.ended:
		byItself = true
	default:
	}
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.ended
	return byItself
}

// stop ends the server as an operator does.
func (s *server) stop() error {
	if s.ended == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
		return s.err
	case <-time.After(30 * time.Second):
		s.kill()
		return errors.New("the server does not stop")
	}
}

// leave removes the control group of a server that has ended.
func (s *server) leave() {
	if s.memory > 0 {
		dir, _ := controlGroup(s.group)
		_ = os.Remove(dir) // a process that is just ending keeps it there, empty and harmless
	}
}

func (s *server) client() *client.Client {
	return client.New("http://"+s.addr, s.token, &client.Options{Patience: time.Millisecond})
}

// post asks for something once, under a name by which it is known when it is asked for again. again says that nobody knows what came of it.
func (s *server) post(ctx context.Context, path, name string, body []byte, out any) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.addr+path, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", name)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return true, err
	}
	defer res.Body.Close()
	said, err := io.ReadAll(res.Body)
	if err != nil {
		return true, err
	}
	if res.StatusCode/100 != 2 {
		return res.StatusCode == http.StatusServiceUnavailable, fmt.Errorf("the answer is %s: %s", res.Status, said)
	}
	return false, json.Unmarshal(said, out)
}

// confine bounds the memory of a process by a control group of that name, in either version of the kernel's interface.
func confine(group string, pid int, bytes int64) error {
	dir, limit := controlGroup(group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("a bound on memory: %w", err)
	}
	for file, v := range map[string]int64{limit: bytes, "cgroup.procs": int64(pid)} {
		if err := os.WriteFile(filepath.Join(dir, file), strconv.AppendInt(nil, v, 10), 0o644); err != nil {
			return fmt.Errorf("a bound on memory: %w", err)
		}
	}
	return nil
}

// controlGroup returns the folder of a control group, and the name of the file in it that bounds memory.
func controlGroup(name string) (dir, limit string) {
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		return filepath.Join("/sys/fs/cgroup/memory", name), "memory.limit_in_bytes"
	}
	return filepath.Join("/sys/fs/cgroup", name), "memory.max"
}

// hogDisk writes and syncs a file again and again, so that the syncs of others take long.
func hogDisk(ctx context.Context, name string) {
	b := make([]byte, 8<<20)
	for ctx.Err() == nil {
		f, err := os.Create(name)
		if err != nil {
			return
		}
		_, err = f.Write(b)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return
		}
	}
}
