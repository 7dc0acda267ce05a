package turn

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// Bounds of what is asked.
const (
	MaxArgs  = driver.MaxEvent / 2 // bytes of what a policy judges; what is longer is refused, because an event could not have all of it
	MaxInput = driver.MaxEvent / 4 // bytes of what is told beside
)

// grace is how long a program that has closed its output may take to end.
const grace = 5 * time.Second

// polite is how long Close waits after the end of the program's input until it sends TERM.
const polite = 2 * time.Second

// Reap waits for the end of a program whose output has ended, and makes it end when it does not.
func Reap(p backend.Process) driver.ProcessData {
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.Done():
	case <-late.C:
		_ = p.Signal("KILL", true) // it has ended, or will
	}
	return p.Wait()
}

// Close closes the input of a program and waits until done is closed or ctx has ended. On the way it sends TERM, which some need.
func Close(ctx context.Context, p backend.Process, done <-chan struct{}) error {
	_ = p.CloseInput()
	late := time.NewTimer(polite)
	defer late.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-late.C:
			_ = p.Signal("TERM", true)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Abandon ends a program that could not be started well, and returns why, as an error of the vocabulary.
func Abandon(title string, p backend.Process, err error) error {
	_ = p.CloseInput()
	_ = p.Signal("KILL", true)
	text := fmt.Sprintf("%s did not start: %s", title, err)
	if tail := strings.TrimSpace(strings.ToValidUTF8(p.Wait().Tail, "\uFFFD")); tail != "" {
		text += ": " + driver.CutTail(tail, 1000)
	}
	return &agent.Error{Kind: agent.Unavailable, Msg: text, Err: err, Hint: "look at what the image has: the version of the CLI, and what it needs to run"}
}
