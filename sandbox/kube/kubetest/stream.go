package kubetest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/coder/websocket"
	"github.com/moby/moby/client"
)

// Channels of a stream (KEP-4006), and its protocols.
const (
	stdin    = 0
	stdout   = 1
	stderr   = 2
	outcome  = 3
	closed   = 255
	closable = "v5.channel.k8s.io"
	older    = "v4.channel.k8s.io"
)

func (c *Cluster) accept(w http.ResponseWriter, r *http.Request) *websocket.Conn {
	protocols := []string{closable, older}
	if c.Old {
		protocols = protocols[1:]
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: protocols})
	if err != nil {
		return nil
	}
	return ws
}

func (c *Cluster) attach(w http.ResponseWriter, r *http.Request, name string) {
	var in *client.HijackedResponse
	if c.node != nil {
		var err error
		if in, err = c.node.attach(r.Context(), name); err != nil {
			status(w, http.StatusInternalServerError, "InternalError", err.Error())
			return
		}
		defer in.Close()
	}
	ws := c.accept(w, r)
	if ws == nil {
		return
	}
	defer ws.CloseNow()
	for {
		_, b, err := ws.Read(r.Context())
		switch {
		case err != nil:
			if in != nil {
				_ = in.CloseWrite() // stdinOnce
			}
			return
		case b[0] == stdin && r.URL.Query().Get("stdin") == "true":
			c.mu.Lock()
			c.boot[name] += string(b[1:])
			c.mu.Unlock()
			if in != nil {
				_, _ = in.Conn.Write(b[1:]) // a container that has ended takes nothing
			}
		case b[0] == closed && b[1] == stdin:
			c.mu.Lock()
			c.closed[name] = true
			c.mu.Unlock()
			if in != nil {
				_ = in.CloseWrite()
			}
		}
	}
}

func (c *Cluster) exec(w http.ResponseWriter, r *http.Request, name string) {
	command := r.URL.Query()["command"]
	if c.node != nil && c.Thing(pods+name) == "null" {
		status(w, http.StatusNotFound, "NotFound", name+" not found")
		return
	}
	ws := c.accept(w, r)
	if ws == nil {
		return
	}
	defer ws.CloseNow()
	send := func(channel byte) channelWriter {
		return func(b []byte) error {
			return ws.Write(r.Context(), websocket.MessageBinary, append([]byte{channel}, b...))
		}
	}
	var code int
	var err error
	if c.node != nil {
		code, err = c.node.exec(r.Context(), name, command, send(stdout), send(stderr))
	} else {
		code, err = pretend(command, send(stdout), send(stderr))
	}
	end := `{"status":"Success"}`
	if err != nil {
		end = fmt.Sprintf(`{"status":"Failure","reason":"InternalError","message":%q}`, err)
	} else if code != 0 {
		end = fmt.Sprintf(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"%d"}]}}`, code)
	}
	_ = send(outcome)([]byte(end))
	_, _, _ = ws.Read(r.Context()) // until who has asked leaves
}

// channelWriter writes to one channel of a stream.
type channelWriter func([]byte) error

func (f channelWriter) Write(b []byte) (int, error) { return len(b), f(b) }

// pretend knows the programs good, and three, which ends with 3.
func pretend(command []string, out, errOut channelWriter) (int, error) {
	line := strings.Join(command, " ")
	_, _ = out.Write([]byte("ran " + line))
	_, _ = errOut.Write([]byte("err"))
	code, ok := map[string]int{"good": 0, "three": 3}[line]
	if !ok {
		return 0, fmt.Errorf("no such program: %s", line)
	}
	return code, nil
}

func (c *Cluster) log(w http.ResponseWriter, r *http.Request, name string) {
	if c.node == nil {
		_, _ = w.Write([]byte("one\ntwo\n"))
		return
	}
	lines, _ := strconv.Atoi(r.URL.Query().Get("tailLines"))
	if err := c.node.log(r.Context(), name, lines, w); err != nil {
		status(w, http.StatusInternalServerError, "InternalError", err.Error())
	}
}
