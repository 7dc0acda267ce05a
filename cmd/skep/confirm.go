package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// confirm asks a person; anything but y or yes is a no. Without a terminal there is nobody to ask.
func (c *cli) confirm(question string) (bool, error) {
	if f, ok := c.stdin.(*os.File); !ok || !isatty.IsTerminal(f.Fd()) {
		return false, usageError("%s there is no terminal to answer on: say --yes", question)
	}
	fmt.Fprintf(c.stderr, "%s [y/N] ", question)
	line, err := bufio.NewReader(c.stdin).ReadString('\n')
	if err != nil {
		return false, nil // the end of the input is no yes
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// notef writes for a person beside the result.
func (c *cli) notef(format string, args ...any) { fmt.Fprintf(c.stderr, format, args...) }
