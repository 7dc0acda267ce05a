package extism_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
)

const asc = "../../examples/hello-as/node_modules/.bin/asc"

// program builds testdata/requests with the SDK of one language. It skips the test where there is no compiler; CI has them all.
func program(t *testing.T, language string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "agent.wasm")
	var cmd *exec.Cmd
	_, err := os.Stat(asc)
	switch language {
	case "Go":
		return build(t, "requests")
	case "C":
		_, err = exec.LookPath("wasm-ld")
		cmd = exec.Command("clang", "--target=wasm32-wasi", "-mexec-model=reactor", "-std=c11", "-O2", "-Wall", "-Wextra", "-I../../sdk/c", "-o", out, "testdata/requests/main.c")
	case "AssemblyScript":
		cmd = exec.Command(asc, "host/extism/testdata/requests/main.ts", "--runtime", "minimal", "--use", "abort=sdk/as/index/abort", "--baseDir", "../..", "-o", out)
	}
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSDKRequests makes requests by the SDKs of the languages that are compiled.
func TestSDKRequests(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-A", "1")
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, "%s %s %s %q é", r.Method, r.Header.Get("Authorization"), r.Header.Get("X-Two"), b)
	}))
	t.Cleanup(srv.Close)
	for _, language := range []string{"Go", "C", "AssemblyScript"} {
		t.Run(language, func(t *testing.T) {
			a := load(t, program(t, language))
			granted, clients := door(t, 1<<20)
			ask := func(function, in string) (string, error) {
				out, _, err := a.Call(t.Context(), extism.Call{Function: function, Input: input(in), Env: cell.Env{Calls: granted}})
				return string(out.Body), err
			}
			body := `POST Bearer {{secret:api}} 2 "b\x00d" é`
			if got, err := ask("ask", srv.URL); err != nil || got != fmt.Sprintf("202 %d %s 1", len(body), body) {
				t.Errorf("%q, %v", got, err)
			}
			clients.Taken.Store(true)
			if _, err := ask("ask", srv.URL); agent.KindOf(err) != agent.Failed || !strings.Contains(err.Error(), "denied: the grant was taken back") {
				t.Errorf("when refused: %v", err)
			}
			for name, good := range map[string]bool{
				"a": true, "a.b-c_1": true, strings.Repeat("a", 63): true, "": false, "A": false, "-a": false, "a.": false, "a}}": false, "é": false, strings.Repeat("a", 64): false,
			} {
				got, err := ask("name", name)
				var said *agent.Error
				if good && (err != nil || got != "{{secret:"+name+"}}") || !good && (!errors.As(err, &said) || !strings.Contains(said.Msg+said.Stack, "not the name of a secret")) {
					t.Errorf("secret(%q): %q, %v", name, got, err)
				}
			}
		})
	}
}
