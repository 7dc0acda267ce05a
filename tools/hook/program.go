package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// run runs a program with body on its standard input. It gets no environment but PATH and LANG, and runs in the root folder, in a process group of its own that
// is killed when its time is over, or when it has ended and left something behind.
func run(ctx context.Context, command []string, body []byte) ([]byte, error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}
	c.Dir = "/"
	c.Stdin = bytes.NewReader(body)
	out, errs := &capped{most: MaxAnswer + 1}, &capped{most: maxText}
	c.Stdout, c.Stderr = out, errs
	c.WaitDelay = time.Second
	group(c)
	err := c.Run()
	killGroup(c)
	if out.over {
		return nil, fmt.Errorf("it answered more than %d bytes", MaxAnswer)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && len(errs.b) > 0:
		return nil, fmt.Errorf("%s: %s", exit, clip(string(errs.b)))
	case errors.Is(err, exec.ErrWaitDelay): // it has ended, and left a child that holds its output
	case err != nil:
		return nil, err
	}
	return out.b, nil
}

// capped keeps the first bytes that are written to it, and takes the rest.
type capped struct {
	b    []byte
	most int
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := c.most - len(c.b)
	if len(p) > room {
		c.over = true
		c.b = append(c.b, p[:max(room, 0)]...)
	} else {
		c.b = append(c.b, p...)
	}
	return len(p), nil
}
