package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skep-dev/skep/agent"
)

// While skep dev watches an agent, skep call leaves what it asked of it in a file of the data directory, and dev asks the same
// again after each save. The file is there as long as dev runs.

const (
	maxReplays   = 5         // different calls that are made again, the newest
	maxReplaySum = 256 << 10 // bytes of a call's input that is kept
)

// pastCall is a call that was made while dev ran.
type pastCall struct {
	Function string        `json:"function"`
	Input    agent.Payload `json:"input"`
}

func (p pastCall) same(q pastCall) bool {
	return p.Function == q.Function && p.Input.Type == q.Input.Type && string(p.Input.Body) == string(q.Input.Body)
}

func (c *cli) replayFile(name string) (string, error) {
	dir, err := c.dataDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "dev", name+".json"), nil
}

// startReplays makes the file for agent name, and returns what removes it.
func (c *cli) startReplays(name string) (file string, stop func(), err error) {
	if file, err = c.replayFile(name); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", nil, err
	}
	return file, func() { os.Remove(file) }, os.WriteFile(file, []byte("[]"), 0o600)
}

// readReplays returns the calls in a file, oldest first.
func readReplays(file string) ([]pastCall, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var calls []pastCall
	return calls, json.Unmarshal(b, &calls)
}

// rememberCall adds a call to the file of a dev that runs. That it cannot is no reason for a call to fail.
func (c *cli) rememberCall(name string, call pastCall) {
	file, err := c.replayFile(name)
	if err != nil || agent.CheckName("agent", name) != nil || len(call.Input.Body) > maxReplaySum {
		return
	}
	calls, err := readReplays(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		calls = nil // cut off while another call wrote it
	} else if err != nil {
		return
	}
	kept := make([]pastCall, 0, maxReplays)
	for _, old := range calls {
		if !old.same(call) {
			kept = append(kept, old)
		}
	}
	kept = append(kept, call)
	if b, err := json.Marshal(kept[max(0, len(kept)-maxReplays):]); err == nil {
		_ = os.WriteFile(file, b, 0o600)
	}
}
