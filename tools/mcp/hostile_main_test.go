package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// hostile is a server over standard input and output that does what its tools are called. Its mode says how it begins.
func hostile(mode string) {
	out := bufio.NewWriter(os.Stdout)
	send := func(format string, args ...any) {
		fmt.Fprintf(out, format+"\n", args...)
		_ = out.Flush()
	}
	switch mode {
	case "exit":
		fmt.Fprintln(os.Stderr, "no configuration was found")
		os.Exit(3)
	case "silent":
		select {}
	case "banner":
		send("Welcome to the server!\n{\"not\": \"mcp\"}")
	case "noise":
		for {
			send("%s", strings.Repeat("noise ", 1000))
		}
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      string          `json:"name"`
				Cursor    string          `json:"cursor"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"params"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		answer := func(format string, args ...any) {
			send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, fmt.Sprintf(format, args...))
		}
		switch m.Method {
		case "server/discover":
			if mode == "old" {
				fmt.Fprintln(os.Stderr, "initialize comes first")
				os.Exit(1)
			}
			send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		case "initialize":
			answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"6.6.6"}}`)
		case "tools/list":
			offers(mode, m.Params.Cursor, answer)
		case "tools/call":
			act(m.Params.Name, m.Params.Arguments, out, answer, send)
		}
	}
	if mode == "stays" {
		select {}
	}
}

func offers(mode, cursor string, answer func(string, ...any)) {
	const fine = `{"name":"ok","inputSchema":{"type":"object"}}`
	switch mode {
	case "many":
		var all []string
		for i := range 600 {
			all = append(all, fmt.Sprintf(`{"name":"t%s_%d","inputSchema":{"type":"object"}}`, cursor, i))
		}
		answer(`{"tools":[%s],"nextCursor":"%sx"}`, strings.Join(all, ","), cursor)
	case "pages":
		answer(`{"tools":[],"nextCursor":"again"}`)
	case "odd":
		answer(`{"tools":[%s]}`, strings.Join([]string{
			fine,
			`{"name":"list","inputSchema":[]}`,
			`{"name":"nothing"}`,
			`{"name":"cycle","inputSchema":{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}}`,
			`{"name":"tree","inputSchema":{"type":"object","properties":{"child":{"$ref":"#"}}}}`,
			`{"name":"remote","inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x.json"}}}}`,
			`{"name":"huge","inputSchema":{"type":"object","description":"` + strings.Repeat("x", 300<<10) + `"}}`,
			`{"name":"talks","description":"` + strings.Repeat("x", 100<<10) + `","inputSchema":{"type":"object"}}`,
			`{"name":"deep","inputSchema":` + strings.Repeat(`{"not":`, 200) + `{}` + strings.Repeat(`}`, 200) + `}`,
			`{"name":"wrong","inputSchema":{"type":"object","properties":{"a":{"type":"strin"}}}}`,
			`{"name":"two words","inputSchema":{"type":"object"}}`,
			fine,
			`{"name":"hints","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"destructiveHint":"yes","idempotentHint":true}}`,
		}, ","))
	default:
		answer(`{"tools":[%s]}`, fine)
	}
}

func act(name string, args json.RawMessage, out *bufio.Writer, answer, send func(string, ...any)) {
	text := func(s string) { answer(`{"content":[{"type":"text","text":%q}]}`, s) }
	switch name {
	case "ok":
		text("fine")
	case "big": // 200 MB
		fmt.Fprint(out, `{"jsonrpc":"2.0","id":99,"result":{"content":[{"type":"text","text":"`)
		part := strings.Repeat("a", 1<<20)
		for range 200 {
			fmt.Fprint(out, part)
		}
		fmt.Fprintln(out, `"}]}}`)
		_ = out.Flush()
	case "endless": // a line that does not end
		fmt.Fprint(out, `{"jsonrpc":"2.0","id":99,"result":{"content":[`)
		_ = out.Flush()
		for range time.Tick(10 * time.Millisecond) {
			fmt.Fprint(out, "1,")
			if out.Flush() != nil {
				return
			}
		}
	case "never":
	case "garbage":
		for range 10_000 {
			send("%s", strings.Repeat("garbage ", 100))
		}
	case "chatty":
		send("a line of a log\n\n[]\n[1]\n{}\nnull")
		text("fine")
	case "crash":
		fmt.Fprintln(os.Stderr, "panic: the disk is on fire")
		os.Exit(2)
	case "env":
		text(strings.Join(os.Environ(), "\n"))
	case "say":
		text(os.Getenv("SAY"))
	case "pid":
		text(fmt.Sprint(os.Getpid()))
	case "child": // that would outlive it
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			text(err.Error())
			return
		}
		text(fmt.Sprint(cmd.Process.Pid))
	case "big number":
		answer(`{"structuredContent":{"n":12345678901234567890},"content":[]}`)
	case "echo":
		answer(`{"structuredContent":%s,"content":[]}`, args)
	case "error":
		send(`{"jsonrpc":"2.0","id":1000000,"result":{}}`)
		answer(`{"isError":true,"content":[{"type":"text","text":"it is out of paper"}]}`)
	case "parts":
		answer(`{"content":[{"type":"text","text":"one"},{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"resource","resource":{"uri":"file:///a/b.bin","blob":"aG8="}},{"type":"resource_link","uri":"file:///c","name":"c"}]}`)
	case "flood":
		for i := range 20_000 {
			send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":%d}}`, i)
		}
		text("fine")
	}
}
