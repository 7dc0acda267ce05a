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
	memory       int64 // MiB

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
	s.cmd = exec.CommandContext(ctx, s.program, args...)
	s.cmd.Env = append(os.Environ(), "SKEP_VAULT_KEY=file:"+s.dir+".vault-key")
	s.stderr.Reset()
	s.cmd.Stderr = &s.stderr
	if s.memory > 0 {
		s.cmd.Env = append(s.cmd.Env, fmt.Sprintf("GOMEMLIMIT=%dMiB", s.memory*2/3))
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ready, ended := make(chan error, 1), make(chan struct{})
	var info struct {
		TokenFile string `json:"token_file"`
	}
	s.ended = ended
	go func() {
		defer close(ended)
		ready <- json.NewDecoder(stdout).Decode(&info)
		_, _ = io.Copy(io.Discard, stdout)
		s.err = s.cmd.Wait()
	}()
	if s.memory > 0 {
		if err := confine(s.cmd.Process.Pid, s.memory<<20); err != nil {
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
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
		return s.err
	case <-time.After(30 * time.Second):
		s.kill()
		return errors.New("the server does not stop")
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

// confine bounds the memory of a process by a control group, in either version of the kernel's interface.
func confine(pid int, bytes int64) error {
	dir, limit := "/sys/fs/cgroup/skep-crash", "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		dir, limit = "/sys/fs/cgroup/memory/skep-crash", "memory.limit_in_bytes"
	}
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
