package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestBar(t *testing.T) {
	var out bytes.Buffer
	b := &bar{w: &out, label: "push"}
	b.set(0, 200)
	b.set(100, 200) // too soon after the one before
	b.set(200, 200)
	b.clear()
	want := "\rpush [" + strings.Repeat(" ", 30) + "]   0%\rpush [" + strings.Repeat("=", 30) + "] 100%\r\x1b[K"
	if out.String() != want {
		t.Errorf("bar draws %q, want %q", out.String(), want)
	}
}

func TestBarIsForTerminals(t *testing.T) {
	var out bytes.Buffer
	b := (&cli{stderr: &out}).newBar("push")
	b.set(1, 1)
	b.step("compile")
	b.clear()
	if out.Len() != 0 {
		t.Errorf("a bar on no terminal draws %q", out.String())
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	(&cli{stdout: &out}).printTable([]string{"NAME", "WHAT"}, [][]string{{"bée", "x"}, {"honeycomb", ""}})
	if want := "NAME       WHAT\nbée        x\nhoneycomb\n"; out.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", out.String(), want)
	}
}
