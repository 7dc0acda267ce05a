package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// maxLine is the most bytes of a line of input, which becomes one message.
const maxLine = 1 << 20

func newInstanceConnect(c *cli) *cobra.Command {
	var events bool
	var linger time.Duration
	cmd := &cobra.Command{
		Use:   "connect AGENT KEY",
		Short: "Open a WebSocket with an instance: lines of input are messages, what comes is printed",
		Long: `Open a WebSocket with an instance. Each line of standard input is sent as a text message. What the instance sends is printed, and so is the
state that clients share, each time that it changes. A line such as "/call history 5" calls a method, with JSON values as its arguments, and
"/state {...}" sets the state. It ends with the input, with Ctrl-C, or when the server closes the connection.`,
		Example:           "  skep instance connect room lobby\n  echo hello | skep instance connect room lobby",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: c.complete(placeArgs...),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			return c.talk(cmd.Context(), cl, args[0], args[1], c.stdin, events, linger)
		},
	}
	cmd.Flags().BoolVar(&events, "events", false, "print the instance's events, too")
	cmd.Flags().DurationVar(&linger, "linger", 500*time.Millisecond, "how long to listen on after the end of the input, from what came last")
	return cmd
}

// talker prints what comes by a socket, a line each.
type talker struct {
	c     *cli
	mu    sync.Mutex
	heard chan struct{} // has one when something came
}

// said is a line with --json.
type said struct {
	Kind    string          `json:"kind"` // message, state, event, result, error
	Version int64           `json:"version,omitempty"`
	Text    string          `json:"text,omitempty"`
	Base64  string          `json:"base64,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (t *talker) say(s said) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.heard <- struct{}{}:
	default:
	}
	if t.c.json {
		b, err := json.Marshal(s)
		if err == nil {
			fmt.Fprintln(t.c.stdout, string(b))
		}
		return
	}
	switch {
	case s.Kind == "message" && s.Base64 != "":
		fmt.Fprintf(t.c.stdout, "bytes: %s\n", s.Base64)
	case s.Kind == "message":
		fmt.Fprintln(t.c.stdout, plain(s.Text))
	case s.Kind == "state":
		fmt.Fprintf(t.c.stdout, "state %d: %s\n", s.Version, plain(compact(s.Data)))
	case s.Kind == "error":
		fmt.Fprintf(t.c.stderr, "%s\n", plain(s.Text))
	default:
		fmt.Fprintf(t.c.stdout, "%s: %s\n", s.Kind, plain(compact(s.Data)))
	}
}

// talk passes lines to an instance until the input or the connection ends.
func (c *cli) talk(ctx context.Context, cl *client.Client, name, key string, in io.Reader, events bool, linger time.Duration) error {
	t := &talker{c: c, heard: make(chan struct{}, 1)}
	o := &client.SocketOptions{
		OnState: func(state json.RawMessage, version int64) { t.say(said{Kind: "state", Version: version, Data: state}) },
		OnMessage: func(data []byte, binary bool) {
			if binary {
				t.say(said{Kind: "message", Base64: base64.StdEncoding.EncodeToString(data)})
				return
			}
			t.say(said{Kind: "message", Text: string(data)})
		},
	}
	if events {
		o.OnEvent = func(e agent.Event) {
			b, err := json.Marshal(e)
			if err == nil {
				t.say(said{Kind: "event", Data: b})
			}
		}
	}
	s, err := cl.Connect(ctx, name, key, o)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	lines := make(chan string)
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(in)
		scan.Buffer(make([]byte, 64<<10), maxLine+1)
		for scan.Scan() {
			select {
			case lines <- scan.Text():
			case <-s.Done():
				return
			}
		}
		if errors.Is(scan.Err(), bufio.ErrTooLong) {
			failed <- agent.Errorf(agent.Invalid, "a line of the input has more than %d bytes, the most of a message", maxLine)
		}
	}()
	for {
		select {
		case line, more := <-lines:
			if !more {
				select {
				case err := <-failed:
					return err
				default:
					t.listen(ctx, s, linger)
					return nil
				}
			}
			if err := t.send(ctx, s, line); err != nil {
				return err
			}
		case <-s.Done():
			return s.Err()
		case <-ctx.Done():
			return nil
		}
	}
}

// listen returns when nothing has come for a while.
func (t *talker) listen(ctx context.Context, s *client.Socket, linger time.Duration) {
	for timer := time.NewTimer(linger); ; timer.Reset(linger) {
		select {
		case <-t.heard:
		case <-timer.C:
			return
		case <-s.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// send does what a line asks for. What an instance refuses is printed, and the talk goes on.
func (t *talker) send(ctx context.Context, s *client.Socket, line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	var err error
	switch verb {
	case "/call":
		method, text, _ := strings.Cut(rest, " ")
		var args []any
		if args, err = valuesOf(text); err == nil {
			var out json.RawMessage
			if out, err = s.Call(ctx, method, args...); err == nil {
				t.say(said{Kind: "result", Data: out})
			}
		}
	case "/state":
		if !json.Valid([]byte(rest)) {
			err = agent.Errorf(agent.Invalid, "the state is a JSON value, not %.80q", rest)
			break
		}
		_, err = s.SetState(ctx, json.RawMessage(rest), nil)
	default:
		return s.SendText(line)
	}
	if err != nil && s.Err() == nil {
		t.say(said{Kind: "error", Text: agent.AsError(err).Msg})
		return nil
	}
	return err
}

// valuesOf reads JSON values that stand one behind the other.
func valuesOf(text string) (out []any, err error) {
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var v json.RawMessage
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, agent.Errorf(agent.Invalid, "the arguments of /call are JSON values, one behind the other, not %.80q", text)
		}
		out = append(out, v)
	}
}
