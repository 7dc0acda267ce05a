//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os/exec"
	"time"

	"github.com/skep-dev/skep/api/client"
)

// repeated is a script that calls a tool so many times, with some calls at once.
func repeated(n, atOnce int, call string) string {
	return fmt.Sprintf(`async () => {
	let left = %d, done = 0;
	const work = async () => { while (left-- > 0) { await %s; done++; } };
	await Promise.all(Array.from({ length: %d }, work));
	return "did " + done;
}`, n, call, atOnce)
}

// many is how many calls each such script makes.
const many = 400

// stdioClient is a client of an MCP server on standard input and output that does nothing but call.
type stdioClient struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	id  int
}

func startStdio(command []string) (*stdioClient, error) {
	c := &stdioClient{cmd: exec.Command(command[0], command[1:]...)}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(out)
	c.out.Buffer(nil, 1<<20)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	err = c.send("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "bench", "version": "1"},
	})
	if err == nil {
		err = c.receive()
	}
	if err == nil {
		_, err = io.WriteString(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("the MCP server: %w", err)
	}
	return c, nil
}

func (c *stdioClient) stop() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *stdioClient) send(method string, params any) error {
	c.id++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	if err == nil {
		_, err = c.in.Write(append(b, '\n'))
	}
	return err
}

// receive reads one answer; what else a server says is passed over.
func (c *stdioClient) receive() error {
	for c.out.Scan() {
		var m struct {
			ID     *int            `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(c.out.Bytes(), &m); err != nil {
			return err
		}
		switch {
		case m.ID == nil:
		case m.Result == nil:
			return fmt.Errorf("it answers with %s", m.Error)
		default:
			return nil
		}
	}
	return io.ErrUnexpectedEOF
}

// calls makes n calls of a tool, with some at once, and returns how many a second that were.
func (c *stdioClient) calls(n, atOnce int, tool string) (float64, error) {
	params := map[string]any{"name": tool, "arguments": map[string]any{}}
	start := time.Now()
	for sent, got := 0, 0; got < n; got++ {
		for ; sent < n && sent < got+atOnce; sent++ {
			if err := c.send("tools/call", params); err != nil {
				return 0, err
			}
		}
		if err := c.receive(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// toolRates is figure T2: how many tools a script calls in a second, beside whoever else calls as many.
func toolRates(ctx context.Context, b *bench) ([]Figure, error) {
	s, err := b.toolServer(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	dir, _, err := b.notes()
	if err != nil {
		return nil, err
	}
	mcp, err := b.addFiles(ctx, client.New("http://"+s.addr, s.token, nil), dir)
	if err != nil {
		return nil, err
	}
	peer, err := b.codemodePeer(ctx)
	if err != nil {
		return nil, err
	}
	defer peer.stop()
	var bare *stdioClient
	if mcp {
		command, err := b.filesServer(ctx, dir)
		if err != nil {
			return nil, err
		}
		if bare, err = startStdio(command); err != nil {
			return nil, err
		}
		defer bare.stop()
	}
	scripted := func(call string, atOnce int) func() (float64, error) {
		return func() (float64, error) {
			body, err := json.Marshal(map[string]any{"code": repeated(many, atOnce, call), "tools": []string{"*"}})
			if err != nil {
				return 0, err
			}
			return s.rateOf(ctx, ask{"/v1/code", "application/json", body, fmt.Sprintf("did %d", many)}, many, 1)
		}
	}
	inPeer := func(atOnce int) func() (float64, error) {
		if peer == nil {
			return nil
		}
		return func() (float64, error) {
			text := repeated(many, atOnce, "tools.add({ a: 1, b: 2 })")
			return peer.rateOf(ctx, ask{"/run", "text/javascript", []byte(text), fmt.Sprintf("did %d", many)}, many, 1)
		}
	}
	single := func() (float64, error) {
		return s.rateOf(ctx, ask{"/v1/tools/files.list/call", "application/json", []byte(`{"args":{}}`), `"files"`}, 1, b.count(100, 20))
	}
	type row struct {
		what, peer   string
		ours, theirs func() (float64, error)
	}
	var fs []Figure
	for _, atOnce := range []int{1, 8} {
		how := ", one at a time"
		if atOnce > 1 {
			how = fmt.Sprintf(", %d at a time", atOnce)
		}
		rows := []row{
			{"a built-in tool", codemodeName, scripted("tools.files.list({})", atOnce), inPeer(atOnce)},
			{"a tool in a cell of its own", codemodeName, scripted("tools.math.add({ a: 1, b: 2 })", atOnce), inPeer(atOnce)},
		}
		if atOnce == 1 {
			rows = append(rows, row{"a built-in tool", "single calls", rows[0].ours, single})
		}
		if bare != nil {
			const tool = "list_allowed_directories"
			rows = append(rows, row{"an MCP server of npm", "bare client", scripted("tools.fs."+tool+"()", atOnce), func() (float64, error) { return bare.calls(many, atOnce, tool) }})
		}
		for _, r := range rows {
			if r.theirs == nil {
				r.theirs = nothing
			}
			f, err := ratesBeside(ctx, b.count(6, 2), "calls of "+r.what+" by a script"+how, r.peer, r.ours, r.theirs)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.what, err)
			}
			fs = append(fs, f)
		}
	}
	return fs, nil
}

// nothing stands for a peer that is not here.
func nothing() (float64, error) { return math.NaN(), nil }

// rateOf sends a request some times in a row and returns how often each of the things was done that it asks for.
func (s *server) rateOf(ctx context.Context, a ask, things, times int) (float64, error) {
	l, err := s.drive(ctx, 1, times, func() ask { return a })
	return l.rate * float64(things), err
}

// ratesBeside measures two rates in turns, after each was measured once to warm up.
func ratesBeside(ctx context.Context, rounds int, name, peer string, ours, theirs func() (float64, error)) (Figure, error) {
	var got [2][]float64
	for round := range 1 + rounds {
		for i := range 2 {
			side := (i + round) % 2
			rate, err := [2]func() (float64, error){ours, theirs}[side]()
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return Figure{}, err
			}
			if round > 0 {
				got[side] = append(got[side], rate)
			}
		}
	}
	return compare("T2", name, PerSecond, got[0], got[1], peer, Target{}), nil
}
