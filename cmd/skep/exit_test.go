package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestExitCodes(t *testing.T) {
	want := map[agent.Kind]int{
		agent.Internal: 1, agent.Invalid: 2, agent.NotFound: 3, agent.Unauthenticated: 4, agent.Denied: 4, agent.Exists: 5,
		agent.Conflict: 5, agent.Exhausted: 6, agent.Unavailable: 7, agent.Failed: 8, agent.Cancelled: 130,
	}
	for _, k := range agent.Kinds() {
		code, ok := want[k]
		if !ok {
			t.Errorf("this table has no exit code for %v", k)
		}
		if got := exitCode(k); got != code {
			t.Errorf("exitCode(%v) = %d, want %d", k, got, code)
		}
	}
}

func TestReport(t *testing.T) {
	full := &agent.Error{
		Kind: agent.Failed, Msg: "Error: no such word", Hint: "look it up", Pos: agent.Pos{File: "a.ts", Line: 3, Column: 7},
		Stack: "at look (a.ts:3:7)\nat greet (a.ts:9:1)",
	}
	tests := []struct {
		name string
		json bool
		err  error
		code int
		want string
	}{
		{"none", false, nil, 0, ""},
		{"full", false, full, 8, "skep: a.ts:3:7: Error: no such word\n    at look (a.ts:3:7)\n    at greet (a.ts:9:1)\nhint: look it up\n"},
		{"foreign", false, errors.New("disk on fire"), 1, "skep: disk on fire\n"},
		{"shown before", false, silent{agent.Failed}, 8, ""},
		{"json", true, full, 8, `{"error":{"kind":"failed","message":"Error: no such word","hint":"look it up",`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			c := &cli{stderr: &out, json: tt.json}
			if code := c.report(context.Background(), tt.err); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if !strings.HasPrefix(out.String(), tt.want) || (tt.want == "" && out.Len() > 0) {
				t.Errorf("stderr:\n%s\nwant:\n%s", out.String(), tt.want)
			}
		})
	}
}

func TestReportInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := &cli{stderr: &bytes.Buffer{}}
	if code := c.report(ctx, context.Canceled); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
