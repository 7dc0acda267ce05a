package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
)

const defaultListen = "127.0.0.1:4747"

// The files that a server leaves in its data directory for clients on the same machine.
const (
	tokenFile  = "owner.token"
	serverFile = "server.json"
)

// serverInfo is the content of serverFile, there while a server runs.
type serverInfo struct {
	URL string `json:"url"`
	PID int    `json:"pid"`

	NewKey string `json:"-"` // source of the key to secrets, when it was made just now
}

// target says where the server is and how to prove who asks.
type target struct{ url, token string }

// dataDir returns the data directory that the flags and the environment name.
func (c *cli) dataDir() (string, error) {
	if dir := or(c.data, os.Getenv("SKEP_DATA")); dir != "" {
		return filepath.Abs(dir)
	}
	if base := os.Getenv("XDG_DATA_HOME"); base != "" {
		return filepath.Join(base, "skep"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &agent.Error{Kind: agent.Invalid, Msg: "no data directory", Err: err, Hint: "name one with --data or SKEP_DATA"}
	}
	return filepath.Join(home, ".local", "share", "skep"), nil
}

// target finds the server: flags, then the environment, then what a server on this machine left in its data directory.
func (c *cli) target() (target, error) {
	t := target{url: or(c.url, os.Getenv("SKEP_URL")), token: or(c.token, os.Getenv("SKEP_TOKEN"))}
	if t.url != "" && t.token != "" {
		return t, nil
	}
	dir, err := c.dataDir()
	if err != nil {
		return target{}, err
	}
	if t.url == "" {
		t.url = "http://" + defaultListen
		var info serverInfo
		b, err := os.ReadFile(filepath.Join(dir, serverFile))
		if err == nil && json.Unmarshal(b, &info) == nil && info.URL != "" {
			t.url = info.URL
		}
	}
	if t.token == "" && !isLocal(t.url) {
		return target{}, &agent.Error{
			Kind: agent.Unauthenticated, Msg: "no access token for " + t.url,
			Hint: "set SKEP_TOKEN; the owner's token of this machine is not sent to another",
		}
	}
	if t.token == "" {
		b, err := os.ReadFile(filepath.Join(dir, tokenFile))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return target{}, &agent.Error{
				Kind: agent.Unauthenticated, Msg: "no access token: there is no " + filepath.Join(dir, tokenFile),
				Hint: "start a server with skep serve, or set SKEP_URL and SKEP_TOKEN",
			}
		case err != nil:
			return target{}, &agent.Error{Kind: agent.Unauthenticated, Msg: "read the owner token", Err: err}
		}
		t.token = strings.TrimSpace(string(b))
	}
	return t, nil
}

// isLocal reports whether rawURL surely names this machine.
func isLocal(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
