package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ledgerEnv names the file of a ledger in the environment of the program that is its server of tools.
const ledgerEnv = "SKEP_CRASH_LEDGER"

// posting is what a call of a tool of the ledger is given. Seen and Random are what the script knew, and Before and After are how many
// milliseconds the tool takes before its effect and after it.
type posting struct {
	Name   string  `json:"name"`
	Seen   int     `json:"seen"`
	Random float64 `json:"random"`
	Before int     `json:"before"`
	After  int     `json:"after"`
}

// line is a line of the ledger: a call that had its effect.
type line struct {
	Tool string `json:"tool"`
	posting
}

type looked struct {
	Lines int `json:"lines"`
}

// The tools of the ledger, and whether making a call again does no harm. The tool look only reads.
var ledgerTools = []struct {
	name, about string
	again, safe bool
}{
	{"put", "Write a line.", false, true},
	{"set", "Write a line that may stand there twice.", true, true},
	{"pay", "Write a line, when a person has allowed it.", false, true},
	{"drop", "Write a line that nothing takes back.", false, false},
}

// beLedger serves a ledger over standard input and output and ends the process, where it was started for that.
func beLedger() {
	file := os.Getenv(ledgerEnv)
	if file == "" {
		return
	}
	if err := serveLedger(context.Background(), file); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveLedger(ctx context.Context, file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	no, s := false, mcp.NewServer(&mcp.Implementation{Name: "ledger", Version: "1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "look", Description: "Count the lines.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(ctx context.Context, _ *mcp.CallToolRequest, p posting) (*mcp.CallToolResult, looked, error) {
			lines, err := readLedger(file)
			return nil, looked{len(lines)}, errors.Join(err, sleep(ctx, time.Duration(p.After)*time.Millisecond))
		})
	for _, t := range ledgerTools {
		hints := &mcp.ToolAnnotations{IdempotentHint: t.again}
		if t.safe {
			hints.DestructiveHint = &no
		}
		mcp.AddTool(s, &mcp.Tool{Name: t.name, Description: t.about, Annotations: hints},
			func(ctx context.Context, _ *mcp.CallToolRequest, p posting) (*mcp.CallToolResult, posting, error) {
				return nil, p, post(f, t.name, p)
			})
	}
	return s.Run(ctx, &mcp.StdioTransport{})
}

// post writes a line that survives a crash. It takes its time whatever becomes of who has called: that is when a kill is most wicked.
func post(f *os.File, tool string, p posting) error {
	b, err := json.Marshal(line{tool, p})
	if err != nil {
		return err
	}
	forever := context.Background()
	if err := sleep(forever, time.Duration(p.Before)*time.Millisecond); err != nil {
		return err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return err
	}
	return errors.Join(f.Sync(), sleep(forever, time.Duration(p.After)*time.Millisecond))
}

// readLedger returns all lines, oldest first.
func readLedger(file string) (out []line, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("the ledger: %w in %q", err, lines.Text())
		}
		out = append(out, l)
	}
	return out, lines.Err()
}
