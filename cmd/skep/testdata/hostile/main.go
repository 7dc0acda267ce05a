// Command hostile is a driver that does as it should not. It stands in for what an image could put in the driver's place. How it misbehaves is told by the
// size of its /tmp, as nothing else of an environment is known in a box before the hello: 64 MiB and as many as the way's place in the list.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/skep-dev/skep/driver"
)

var ways = []string{"mute", "ends", "replay", "flood", "giant"}

func main() {
	var tmp syscall.Statfs_t
	err := syscall.Statfs("/tmp", &tmp)
	if err == nil {
		err = run(context.Background(), ways[int64(tmp.Blocks)*tmp.Bsize>>20-64])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(7)
	}
}

func run(ctx context.Context, how string) error {
	var boot driver.Boot
	if err := json.NewDecoder(os.Stdin).Decode(&boot); err != nil {
		return err
	}
	switch how {
	case "mute":
		time.Sleep(time.Hour)
	case "ends":
		return fmt.Errorf("this machine is not for me")
	}
	c, answer, err := hello(ctx, &boot, "first")
	if err != nil || answer.Kind != driver.Welcome {
		return fmt.Errorf("%s: %v", answer.Kind, err)
	}
	if err := send(ctx, c, &driver.Message{Kind: driver.Ready}); err != nil {
		return err
	}
	for { // until a run does something in the box
		m, err := receive(ctx, c)
		if err != nil {
			return err
		}
		if m.Kind == driver.Command {
			break
		}
	}
	switch how {
	case "replay":
		_, again, err := hello(ctx, &boot, "second")
		text := fmt.Sprintf("the second hello was answered %s: %v %v", again.Kind, again.Fault, err)
		if err := send(ctx, c, events(1, driver.NewEvent("", driver.DriverLog, driver.TextData{Text: text}))); err != nil {
			return err
		}
		for { // until it is stored
			m, err := receive(ctx, c)
			if err != nil || m.Kind == driver.Ack {
				return fmt.Errorf("it has told: %v", err)
			}
		}
	case "flood": // events as large as they may be, as fast as it can, without waiting for anything
		e := driver.NewEvent("", driver.DriverLog, driver.TextData{Text: strings.Repeat("x", driver.MaxEvent-1024)})
		for seq := range int64(200) {
			if err := send(ctx, c, events(seq+1, e)); err != nil {
				return err
			}
		}
		for {
			m, err := receive(ctx, c)
			if err != nil || m.Kind == driver.Ack && m.Seq == 200 {
				return fmt.Errorf("200 are stored: %v", err)
			}
		}
	case "giant": // a message that is larger than any may be, again and again
		e := driver.NewEvent("", driver.DriverLog, driver.TextData{Text: strings.Repeat("x", 2*driver.MaxMessage)})
		for {
			if err := send(ctx, c, events(1, e)); err == nil {
				_, err = receive(ctx, c)
				if err == nil {
					continue
				}
			}
			var w driver.WelcomeBody
			if err := answer.Read(&w); err != nil {
				return err
			}
			if c, _, err = greet(ctx, &boot, driver.HelloBody{Key: w.Key}); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("nobody knows the way %q", how)
}

func events(first int64, list ...driver.Event) *driver.Message {
	return &driver.Message{Kind: driver.Events, Body: driver.Body(driver.EventsBody{First: first, List: list})}
}

// hello comes with the token of the boot payload.
func hello(ctx context.Context, boot *driver.Boot, nonce string) (*websocket.Conn, driver.Message, error) {
	return greet(ctx, boot, driver.HelloBody{Token: boot.Token, Nonce: nonce})
}

func greet(ctx context.Context, boot *driver.Boot, h driver.HelloBody) (*websocket.Conn, driver.Message, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", boot.Socket)
	}}}
	c, _, err := websocket.Dial(ctx, "ws://skep"+driver.Path, &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		return nil, driver.Message{}, err
	}
	h.Version, h.Sandbox, h.Generation, h.Driver = driver.Version, boot.Sandbox, boot.Generation, "hostile"
	if err := send(ctx, c, &driver.Message{Kind: driver.Hello, Body: driver.Body(h)}); err != nil {
		return nil, driver.Message{}, err
	}
	m, err := receive(ctx, c)
	return c, m, err
}

func send(ctx context.Context, c *websocket.Conn, m *driver.Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.Write(ctx, websocket.MessageText, b)
}

func receive(ctx context.Context, c *websocket.Conn) (m driver.Message, err error) {
	_, b, err := c.Read(ctx)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	return m, err
}
