//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// server is a child process that listens on a loopback address.
type server struct {
	cmd   *exec.Cmd
	addr  string
	token string
}

// stop ends the process and waits for it.
func (s *server) stop() {
	if s == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		_ = s.cmd.Process.Kill()
		<-ended
	}
}

func (s *server) cpu() (float64, error) { return cpuOf(s.cmd.Process.Pid) }

// greetAgent is the stored agent of figure P2; the peer has the same as a handler.
const greetAgent = `export function greet(input) { return { hi: input.name } }`

// skepProgram builds skep once and returns its path.
func (b *bench) skepProgram(ctx context.Context) (string, error) {
	return b.program(ctx, "skep")
}

// program builds a command of this module once and returns its path.
func (b *bench) program(ctx context.Context, name string, env ...string) (string, error) {
	file := filepath.Join(b.dir, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", file, "./cmd/"+name)
	build.Dir, build.Env = b.root, append(os.Environ(), env...)
	if _, err := build.Output(); err != nil {
		return "", fmt.Errorf("build %s: %w", name, explain(err))
	}
	return file, nil
}

// startSkep runs skep serve on a data directory, and returns when it says that it is ready. The caller stops it.
func (b *bench) startSkep(ctx context.Context, data string, flags ...string) (*server, error) {
	program, err := b.skepProgram(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--data", data}, flags...)...)
	cmd.Env = append(os.Environ(), "SKEP_VAULT_KEY=file:"+data+".vault-key")
	log, err := os.Create(filepath.Join(b.dir, "skep.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd}
	if err := s.greet(stdout); err != nil {
		s.stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("skep serve did not start: %w: %s", err, said)
	}
	return s, nil
}

// greet reads the line by which skep serve says that it is ready.
func (s *server) greet(stdout io.Reader) error {
	var info struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	if err := json.NewDecoder(bufio.NewReader(stdout)).Decode(&info); err != nil {
		return err
	}
	token, err := os.ReadFile(info.TokenFile)
	if err != nil {
		return err
	}
	u, err := url.Parse(info.URL)
	if err != nil {
		return err
	}
	s.addr, s.token = u.Host, strings.TrimSpace(string(token))
	return nil
}

// putCode stores the plugin bench in a server.
func (s *server) putCode(ctx context.Context) (*client.Client, error) {
	c := client.New("http://"+s.addr, s.token, nil)
	up := client.Upload{Name: "bench", Version: "1.0.0", Filename: "bench.js", Body: []byte(greetAgent)}
	if _, err := c.PutPlugin(ctx, up, nil); err != nil {
		return nil, fmt.Errorf("store the agent's code: %w", err)
	}
	return c, nil
}

// ourServer starts skep serve with an agent called bench.
func (b *bench) ourServer(ctx context.Context) (_ *server, err error) {
	if b.skep == nil {
		b.skep, err = b.serverWithAgent(ctx, "data", "--isolation", "inline")
	}
	return b.skep, err
}

// apartServer is the same with cells in worker processes.
func (b *bench) apartServer(ctx context.Context) (_ *server, err error) {
	if b.apart == nil {
		b.apart, err = b.serverWithAgent(ctx, "data-apart", "--isolation", "process")
	}
	return b.apart, err
}

func (b *bench) serverWithAgent(ctx context.Context, data string, flags ...string) (*server, error) {
	s, err := b.startSkep(ctx, filepath.Join(b.dir, data), flags...)
	if err != nil {
		return nil, err
	}
	c, err := s.putCode(ctx)
	if err == nil {
		_, err = c.CreateAgent(ctx, client.NewAgent{Name: "bench", Plugin: "bench", Limits: agent.Limits{}})
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// peerVersion is that of package.json.
const peerVersion = "1.20261117.1"

// peerServer installs and starts workerd. When it cannot be had here it returns nil, and b.noPeer says why.
func (b *bench) peerServer(ctx context.Context) (*server, error) {
	if b.peer != nil {
		return b.peer, nil
	}
	program := b.peerProgram(ctx)
	if program == "" {
		return nil, nil
	}
	var err error
	b.peer, err = b.startPeer(ctx, program, filepath.Join(b.root, "internal/bench/peer/config.capnp"), "peer.log")
	return b.peer, err
}

// peerProgram is workerd's path. When it cannot be had here it is empty, and b.noPeer says why.
func (b *bench) peerProgram(ctx context.Context) string {
	if b.noPeer != "" {
		return ""
	}
	program, err := b.installPeer(ctx)
	if err != nil {
		b.noPeer = err.Error()
		fmt.Fprintf(b.progress, "the peer is not here: %s\n", b.noPeer)
	}
	return program
}

// startPeer starts workerd with a configuration, and returns when it answers. The caller stops it.
func (b *bench) startPeer(ctx context.Context, program, config, logName string, flags ...string) (*server, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, append([]string{"serve", config, "config", "--experimental", "--socket-addr", "main=" + addr}, flags...)...)
	log, err := os.Create(filepath.Join(b.dir, logName))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, addr: addr}
	if err := awaitAnswer(ctx, addr); err != nil {
		s.stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("workerd did not start: %w: %s", err, said)
	}
	return s, nil
}

// installPeer runs npm once and returns workerd's path.
func (b *bench) installPeer(ctx context.Context) (string, error) {
	dir := filepath.Join(b.root, "internal/bench/peer")
	find := func() string {
		found, _ := filepath.Glob(filepath.Join(dir, "node_modules/@cloudflare/workerd-*/bin/workerd"))
		if _, err := os.Stat(filepath.Join(dir, "node_modules/@cloudflare/codemode")); err != nil || len(found) == 0 {
			return ""
		}
		return found[0]
	}
	if program := find(); program != "" {
		return program, nil
	}
	if err := npmCI(ctx, dir); err != nil {
		return "", err
	}
	if program := find(); program != "" {
		return program, nil
	}
	return "", errors.New("npm has no workerd for this platform")
}

// npmCI installs what a folder's package-lock.json names.
func npmCI(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is not installed")
	}
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("npm ci: %w", explain(err))
	}
	return nil
}

func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// awaitAnswer asks until a server gives any answer.
func awaitAnswer(ctx context.Context, addr string) error {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/ready", nil)
		if err != nil {
			return err
		}
		req.Close = true // a server that is stopped waits for idle connections
		if res, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			return res.Body.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
