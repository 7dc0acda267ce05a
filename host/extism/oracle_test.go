package extism_test

import (
	"strings"
	"testing"

	sdk "github.com/extism/go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
)

// TestAgreesWithSDK runs the modules that come with the Extism Go SDK in it and here. None was built for us.
func TestAgreesWithSDK(t *testing.T) {
	long := strings.Repeat("The quick brown fox, naïve as ever. ", 300)
	for _, tc := range []struct {
		module, function string
		inputs           []string
		config           map[string]string
		quiet            bool   // the SDK drops what the module prints, we log it
		failed           string // what our error says when the SDK has one with other words
	}{
		{module: "alloc.wasm", function: "run_test"},
		{module: "config.wasm", function: "run_test"},
		{module: "config.wasm", function: "run_test", config: map[string]string{"thing": "hello"}},
		{module: "count_vowels.wasm", function: "count_vowels", inputs: []string{"", "hello world", "aaaaaa", "bbb", long}},
		{module: "count_vowels_std.wasm", function: "_start", inputs: []string{"hello world", long}},
		{module: "exit.wasm", function: "_start", config: map[string]string{"code": "0"}},
		{module: "exit.wasm", function: "_start", config: map[string]string{"code": "-1"}, failed: "status 4294967295"},
		{module: "exit.wasm", function: "_start", config: map[string]string{"code": "500"}, failed: "status 500"},
		{module: "exit.wasm", function: "_start", config: map[string]string{"code": "abc"}, failed: "status 1"},
		{module: "exit.wasm", function: "_start", failed: "status 2"},
		{module: "fail.wasm", function: "run_test"},
		{module: "fs.wasm", function: "run_test", failed: "status 1"},
		{module: "fs_std.wasm", function: "run_test", failed: "status 1"},
		{module: "hello.wasm", function: "run_test"},
		{module: "hello_haskell.wasm", function: "testing", inputs: []string{"John"}, config: map[string]string{"greeting": "Howdy"}},
		{module: "input_offset.wasm", function: "input_offset_length", inputs: []string{"", "hello world", long}},
		{module: "log.wasm", function: "run_test"},
		{module: "noop.wasm", function: "run_test"},
		{module: "println.wasm", function: "run_test", inputs: []string{"hello", "two\nlines"}, quiet: true},
		{module: "read_write.wasm", function: "try_read"},
		{module: "read_write.wasm", function: "try_write", inputs: []string{"x"}},
		{module: "replace.wasm", function: "run_test", inputs: []string{"", "a test of a test", long}},
		{module: "sleep.wasm", function: "run_test", config: map[string]string{"duration": "0"}},
		{module: "std_command.wasm", function: "_start", inputs: []string{"Benjamin", ""}},
		{module: "var.wasm", function: "run_test"},
		{module: "alloc.wasm", function: "no_such_function", failed: "it has run_test"},
	} {
		t.Run(tc.module+"/"+tc.function+"/"+tc.config["code"], func(t *testing.T) {
			wasm := fixture(t, tc.module)
			ours := load(t, wasm)
			theirs := oracle(t, wasm, sdk.Manifest{Config: tc.config})
			if tc.inputs == nil {
				tc.inputs = []string{""}
			}
			for _, in := range tc.inputs {
				var wantLogs, logs []string
				code, want, wantErr := ask(t, theirs, tc.function, in, &wantLogs)
				log := func(l agent.LogLevel, s string) { logs = append(logs, l.String()+": "+s) }
				got, _, err := ours.Call(t.Context(), extism.Call{
					Function: tc.function, Input: input(in), Config: tc.config, Env: cell.Env{Log: log},
				})
				if fails := wantErr != nil || code != 0; fails != (err != nil) {
					t.Fatalf("%.20q: %v; the SDK says %d, %v", in, err, code, wantErr)
				}
				switch {
				case err == nil:
					if string(got.Body) != want {
						t.Errorf("%.20q: %q, want %q", in, got.Body, want)
					}
				case tc.failed != "":
					if !strings.Contains(err.Error(), tc.failed) {
						t.Errorf("%.20q: %v, want it to say %q", in, err, tc.failed)
					}
				case wantErr == nil || err.Error() != wantErr.Error():
					t.Errorf("%.20q: %v, want %v", in, err, wantErr)
				}
				if d := cmp.Diff(fromModule(wantLogs), logs); d != "" && !tc.quiet {
					t.Errorf("%.20q: log (-SDK +ours):\n%s", in, d)
				}
			}
		})
	}
}

// fromModule drops the lines that the SDK itself logs.
func fromModule(lines []string) []string {
	var kept []string
	for _, l := range lines {
		if !strings.Contains(l, "Calling ") && !strings.Contains(l, "untime") && !strings.Contains(l, "module detected") {
			kept = append(kept, l)
		}
	}
	return kept
}
