package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

const (
	complaintLines = 200  // of one process that go to the log
	complaintLine  = 1000 // bytes of a line
)

// complaints takes what a process writes to its standard error: reports of its own faults, or the trace of its end. It is
// hostile text like all else.
type complaints struct {
	log *slog.Logger

	mu       sync.Mutex
	line     []byte
	lines    int
	noMemory bool
}

func (c *complaints) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(b)
	for len(b) > 0 && c.lines < complaintLines {
		part, rest, whole := bytes.Cut(b, []byte("\n"))
		c.line = append(c.line, part[:min(len(part), complaintLine-len(c.line))]...)
		b = rest
		if !whole {
			break
		}
		c.noMemory = c.noMemory || saysNoMemory(string(c.line))
		c.log.Warn("a worker process said", "line", string(c.line))
		c.line = c.line[:0]
		c.lines++
	}
	return n, nil
}

// saysNoMemory tells from what the Go runtime, the engine or the race detector say when a limit of memory is hit.
func saysNoMemory(line string) bool {
	for _, sign := range []string{"out of memory", "cannot allocate memory", "failed to reserve", "failed to allocate"} {
		if strings.Contains(line, sign) {
			return true
		}
	}
	return false
}

// ranOut reports whether the process said that it had no memory left. It is asked when the process has ended.
func (c *complaints) ranOut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noMemory
}
