package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// Channels of a stream: the first byte of each message (KEP-4006). The fifth protocol has the last, which closes another.
const (
	stdin    = 0
	stdout   = 1
	stderr   = 2
	outcome  = 3 // a Status as JSON
	closed   = 255
	closable = "v5.channel.k8s.io"
	older    = "v4.channel.k8s.io"
)

// stream opens a WebSocket of a pod: attach or exec.
func (p *Provider) stream(ctx context.Context, h sandbox.Handle, verb string, query url.Values) (*websocket.Conn, error) {
	header, err := p.header()
	if err != nil {
		return nil, err
	}
	query.Set("container", container)
	what := verb + " to the box"
	ws, res, err := websocket.Dial(ctx, p.o.Server+p.pod(string(h))+"/"+verb+"?"+query.Encode(), &websocket.DialOptions{
		HTTPClient: p.http, HTTPHeader: header, Subprotocols: []string{closable, older},
	})
	if err == nil {
		ws.SetReadLimit(1 << 20)
		return ws, nil
	}
	if res != nil && res.StatusCode >= http.StatusBadRequest {
		answer, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return nil, refused(what, res.StatusCode, answer)
	}
	return nil, p.lost(what, err)
}

// attach writes boot to the driver, and closes its standard input: by word where that is spoken, else by leaving, for stdinOnce.
func (p *Provider) attach(ctx context.Context, h sandbox.Handle, boot io.Reader) error {
	ws, err := p.stream(ctx, h, "attach", url.Values{"stdin": {"true"}})
	if err != nil {
		return err
	}
	reading := make(chan struct{})
	defer func() {
		_ = ws.CloseNow()
		<-reading
	}()
	go func() { // a peer that nobody reads cannot close
		defer close(reading)
		for {
			if _, _, err := ws.Read(ctx); err != nil {
				return
			}
		}
	}()
	block := make([]byte, 1+16<<10)
	for {
		n, err := boot.Read(block[1:])
		if n > 0 {
			block[0] = stdin
			if err := ws.Write(ctx, websocket.MessageBinary, block[:1+n]); err != nil {
				return p.lost("give the box what it boots with", err)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return &agent.Error{Kind: agent.Unavailable, Msg: "kubernetes: cannot read what the box boots with", Err: err}
		}
	}
	if ws.Subprotocol() == closable {
		if err := ws.Write(ctx, websocket.MessageBinary, []byte{closed, stdin}); err != nil {
			return p.lost("give the box what it boots with", err)
		}
	}
	_ = ws.Close(websocket.StatusNormalClosure, "") // a peer that has closed already is no fault
	return nil
}

// Exec runs a program in a box, as its user.
func (p *Provider) Exec(ctx context.Context, h sandbox.Handle, command []string, out, errOut io.Writer) (int, error) {
	ws, err := p.stream(ctx, h, "exec", url.Values{"command": command, "stdout": {"true"}, "stderr": {"true"}})
	if err != nil {
		return 0, err
	}
	defer ws.CloseNow()
	for {
		_, b, err := ws.Read(ctx)
		if err != nil {
			return 0, p.lost("read what the program in the box writes", err)
		}
		if len(b) == 0 {
			continue
		}
		switch b[0] {
		case stdout:
			_, err = out.Write(b[1:])
		case stderr:
			_, err = errOut.Write(b[1:])
		case outcome:
			return codeOf(b[1:])
		}
		if err != nil {
			return 0, err
		}
	}
}

// codeOf reads the exit status in a Status.
func codeOf(b []byte) (int, error) {
	var s struct {
		Status, Message string
		Details         struct {
			Causes []struct{ Reason, Message string }
		}
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return 0, &agent.Error{Kind: agent.Unavailable, Msg: "kubernetes: how the program in the box ended is no JSON", Err: err}
	}
	if s.Status == "Success" {
		return 0, nil
	}
	for _, c := range s.Details.Causes {
		if code, err := strconv.Atoi(c.Message); c.Reason == "ExitCode" && err == nil {
			return code, nil
		}
	}
	return 0, &agent.Error{Kind: agent.Failed, Msg: "kubernetes: the program in the box did not run: " + s.Message}
}

// Log returns the end of what the driver wrote, most bytes at most.
func (p *Provider) Log(ctx context.Context, h sandbox.Handle, most int64) ([]byte, error) {
	var got []byte
	err := p.call(ctx, "read the log of a box", http.MethodGet, fmt.Sprintf("%s/log?container=%s&tailLines=%d", p.pod(string(h)), container, logLines), "", nil, &got)
	if n := int64(len(got)) - most; n > 0 {
		got = got[n:]
	}
	return got, err
}

// logLines is of the lines of a log that are asked for: the API counts bytes from its beginning alone.
const logLines = 4096
