package python

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

const faulty = `
import os, sys, threading
import helper, skep

def boom(x):
    return helper.deep(x)

def chain():
    try:
        helper.deep(1)
    except ValueError as e:
        raise RuntimeError("outer") from e

def recurse(): return recurse()
def abyss():
    sys.setrecursionlimit(10**9)
    return recurse()
def leave(): os._exit(3)
def exit(): sys.exit("done")
def unplain(): return object()
def nan(): return float("nan")
def ask(): return skep.call("words", "up", "x")
def thread(): threading.Thread(target=ask).start()
def open_file(): return open("/etc/passwd").read()
def environment(): return dict(os.environ)
def read_input(): return input()
async def sleepy():
    import asyncio
    await asyncio.sleep(1)
def wait_forever():
    import asyncio
    return asyncio.Future()
def forge(): os.write(0, b"zzz")
def forge_batch(): os.write(0, b"Bzzz")
def forge_name(): os.write(0, b"C\0")
def forge_output():
    os.write(0, b"Otext/plain\0forged")
    return "true"
def forge_error():
    os.write(0, b"E{")
def steal(): return len(os.read(0, 1 << 20))
def tamper():
    sys.modules["__main__"].__dict__.clear()
def tamper_json():
    import json
    json.dumps = None
    return 1
`

func TestErrors(t *testing.T) {
	a := load(t, "main.py", faulty, "helper.py", "def deep(x):\n    if x:\n        raise ValueError('too deep')\n")
	for _, tt := range []struct {
		function, in string
		kind         agent.Kind
		msg, pos     string
		stack        string
	}{
		{"boom", "1", agent.Failed, "ValueError: too deep", "helper.py:3:9", "at deep (helper.py:3:9)\nat boom (main.py:6:12)"},
		{"chain", "", agent.Failed, "RuntimeError: outer", "main.py:12:9",
			"at chain (main.py:12:9)\ncaused by ValueError: too deep\nat deep (helper.py:3:9)\nat chain (main.py:10:9)"},
		{"recurse", "", agent.Failed, "RecursionError: maximum recursion depth exceeded", "main.py:14:23", ""},
		{"leave", "", agent.Failed, "the code ended its interpreter, with exit status 3", "", ""},
		{"exit", "", agent.Failed, "SystemExit: done", "main.py:19:13", "at exit (main.py:19:13)"},
		{"unplain", "", agent.Failed, "TypeError: a object has no JSON form", "", ""},
		{"nan", "", agent.Failed, "ValueError: Out of range float values are not JSON compliant: nan", "", ""},
		{"ask", "", agent.Failed, "CallError: nothing is granted here", "main.py:22:19", "at ask (main.py:22:19)"},
		{"thread", "", agent.Failed, "RuntimeError: can't start new thread", "main.py:23:15", "at thread (main.py:23:15)"},
		{"open_file", "", agent.Failed, "FileNotFoundError: [Errno 44] No such file or directory: '/etc/passwd'", "main.py:24:25", ""},
		{"read_input", "", agent.Failed, "EOFError", "main.py:26:26", ""},
		{"sleepy", "", agent.Failed, "RuntimeError: no running event loop", "main.py:29:5", ""},
		{"forge", "", agent.Failed, "the code wrote to its host's device", "", ""},
		{"forge_batch", "", agent.Failed, "the code made a batch of host calls that cannot be read: abi: call name is empty or too long", "", ""},
		{"forge_name", "", agent.Failed, "the code made a host call with no name, or one longer than 128 bytes", "", ""},
		{"forge_error", "", agent.Failed, "the code raised an exception that cannot be shown", "", ""},
		{"missing", "", agent.NotFound, "the code has no function missing", "", ""},
		{"boom", "{", agent.Invalid, "the input says that it is JSON, and is not", "", ""},
		{"boom", "", agent.Failed, "TypeError: boom() missing 1 required positional argument: 'x'", "", ""},
	} {
		t.Run(tt.function+tt.in, func(t *testing.T) {
			_, err := call(t, a, tt.function, js(tt.in), cell.Env{})
			e := agent.AsError(err)
			if err == nil || e.Kind != tt.kind || e.Msg != tt.msg || e.Pos.String() != tt.pos {
				t.Fatalf("got %v %q at %v, want %v %q at %q", e.Kind, e.Msg, e.Pos, tt.kind, tt.msg, tt.pos)
			}
			if tt.stack != "" && e.Stack != tt.stack {
				t.Error(cmp.Diff(tt.stack, e.Stack))
			}
			if strings.Contains(e.Stack, "boot") || strings.Contains(e.Stack, "<string>") {
				t.Errorf("the stack shows the host's own code:\n%s", e.Stack)
			}
		})
	}
	for function, want := range map[string]string{
		"environment": "{}", "steal": "0", "tamper": "null", "forge_output": "true", "tamper_json": "1",
	} {
		if out, err := call(t, a, function, agent.Payload{}, cell.Env{}); err == nil && string(out.Body) != want {
			t.Errorf("%s: got %s, want %s, or an error", function, out.Body, want)
		}
		if out, err := call(t, a, "environment", agent.Payload{}, cell.Env{}); err != nil || string(out.Body) != "{}" {
			t.Errorf("the call after %s: %s, %v", function, out.Body, err)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []string
		kind  agent.Kind
		msg   string
		pos   string
	}{
		{"syntax", []string{"main.py", "def f():\n    return (\n"}, agent.Invalid, "SyntaxError: '(' was never closed", "main.py:2:12"},
		{"indentation", []string{"main.py", "def f():\nreturn 1\n"}, agent.Invalid, "IndentationError: expected an indented block after function definition on line 1", "main.py:2:1"},
		{"syntax in a module", []string{"main.py", "import lib\n", "lib.py", "x = = 1\n"}, agent.Invalid, "SyntaxError: invalid syntax", "lib.py:1:5"},
		{"raises", []string{"main.py", "\n1/0\n"}, agent.Failed, "ZeroDivisionError: division by zero", "main.py:2:1"},
		{"no module", []string{"main.py", "import numpy\n"}, agent.Failed, "ModuleNotFoundError: No module named 'numpy'", "main.py:1:1"},
		{"asks the host", []string{"main.py", "import skep\nskep.emit('x')\n"}, agent.Failed, "CallError: nothing is granted here", "main.py:2:1"},
		{"never ends", []string{"main.py", "while True: pass\n"}, agent.Exhausted, "the code used more CPU time than its limit of 200ms", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := engine(t).Load(t.Context(), source(tt.files...), cell.Env{Limits: agent.Limits{CPU: 200 * time.Millisecond}})
			if err == nil {
				a.Close()
				t.Fatal("it loads")
			}
			e := agent.AsError(err)
			if e.Kind != tt.kind || e.Msg != tt.msg || e.Pos.String() != tt.pos {
				t.Errorf("got %v %q at %v, want %v %q at %s", e.Kind, e.Msg, e.Pos, tt.kind, tt.msg, tt.pos)
			}
		})
	}
}

const greedy = `
import sys

def loop():
    while True: pass
def long_power(): return 7 ** (10**8)
def expression():
    import re
    return bool(re.match(r"(a+)+$", "a" * 40 + "b"))
def collect():
    x = []
    while True: x.append(bytearray(1 << 20))
def big(): return len(bytearray(1 << 30))
def abyss():
    sys.setrecursionlimit(10**9)
    def down(n): return down(n + 1)
    return down(0)
def deep_c():
    x = []
    for _ in range(200_000): x = [x]
    return repr(x)
def chatter():
    while True: print("x" * 1000)
def nap():
    import time
    time.sleep(60)
`

func TestLimits(t *testing.T) {
	a := load(t, "main.py", greedy)
	limits := agent.Limits{CPU: 300 * time.Millisecond, Wall: 2 * time.Second, Memory: 48 << 20}
	for function, want := range map[string]agent.Limit{
		"loop": agent.LimitCPU, "long_power": agent.LimitCPU, "expression": agent.LimitCPU, "collect": agent.LimitMemory, "big": agent.LimitMemory,
		"chatter": agent.LimitLog, "nap": agent.LimitWall, "abyss": agent.LimitCPU, "deep_c": 0,
	} {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			limits := limits
			if want == agent.LimitMemory { // pages of a busy machine cost time
				limits.CPU, limits.Wall = 10*time.Second, 30*time.Second
			}
			_, err := call(t, a, function, agent.Payload{}, cell.Env{Limits: limits})
			e := agent.AsError(err)
			if err == nil || want != 0 && (e.Kind != agent.Exhausted || e.Limit != want) {
				t.Errorf("got %v, want limit %s", err, want)
			}
			if want == 0 {
				t.Logf("%s: %v %v: %s", function, e.Kind, e.Limit, e.Msg)
			}
		})
	}
}
