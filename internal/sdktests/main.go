// The vendors' own tests of their SDKs for Go, run through a server: they ask for every field that an endpoint has, and want an answer that the SDK reads.
//
//	make sdk-tests            builds skep and runs them; the first time takes minutes and 3 GB of memory to compile
//
// It is a module apart, so that nothing of it is in the build or the tests of Skep. Their tests come out of the module cache, at the versions in go.mod.
// The provider is a server here, which says what the vendors' documentation shows; the key is the one that the tests have written in them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// suite is a package of tests, and those of them that ask what Skep answers.
type suite struct {
	pkg   string
	tests []string
}

var suites = []suite{
	{"github.com/anthropics/anthropic-sdk-go/v2", []string{
		"TestMessageNewWithOptionalParams", "TestMessageCountTokensWithOptionalParams", "TestMessageNewWithNonStreamingTimeoutLimits", "TestUsage",
		"TestModelGetWithOptionalParams", "TestModelListWithOptionalParams",
	}},
	{"github.com/openai/openai-go/v3", []string{
		"TestChatCompletionNewWithOptionalParams", "TestEmbeddingNewWithOptionalParams", "TestUsage", "TestModelGet", "TestModelList",
	}},
	{"github.com/openai/openai-go/v3/responses", []string{"TestResponseNewWithOptionalParams", "TestInputTokenCountWithOptionalParams"}},
}

// answers are what the provider says, by path.
var answers = map[string]string{
	"/v1/chat/completions": `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"This is a test","refusal":null},` +
		`"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":4,"total_tokens":16}}`,
	"/v1/responses": `{"id":"resp_1","object":"response","created_at":1700000000,"status":"completed","model":"gpt-4o","output":[{"type":"message","id":"msg_1","status":"completed","role":"assistant",` +
		`"content":[{"type":"output_text","text":"This is a test","annotations":[]}]}],"usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":16}}`,
	"/v1/responses/input_tokens": `{"object":"response.input_tokens","input_tokens":12}`,
	"/v1/embeddings":             `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25,-0.5]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":5,"total_tokens":5}}`,
	"/v1/messages":               `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"This is a test"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":12,"output_tokens":4}}`,
	"/v1/messages/count_tokens":  `{"input_tokens":12}`,
}

func main() {
	skep := flag.String("skep", "bin/skep", "the skep `PROGRAM`")
	only := flag.String("only", "", "run only suites whose package has this `TEXT` in its name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *skep, *only); err != nil {
		fmt.Fprintln(os.Stderr, "sdktests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, skep, only string) error {
	skep, err := filepath.Abs(skep)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sdktests")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	provider := &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute}
	go func() { _ = provider.Serve(up) }()
	defer func() { _ = provider.Close() }()
	s, err := start(ctx, skep, dir)
	if err != nil {
		return err
	}
	defer s.stop()
	base := "http://" + up.Addr().String()
	for _, step := range []struct {
		stdin string
		args  []string
	}{
		{"", []string{"model", "provider", "add", "openai-like", "--url", base + "/v1", "--private", "--protocol", "openai-chat,openai-responses,openai-embeddings", "--models", "gpt-*,text-*,model"}},
		{"", []string{"model", "provider", "add", "anthropic-like", "--url", base, "--private", "--protocol", "anthropic", "--models", "claude-*,model_id,test-model"}},
		{"My API Key", []string{"model", "key", "create", "openai-tests", "--value-stdin"}},
		{"my-anthropic-api-key", []string{"model", "key", "create", "anthropic-tests", "--value-stdin"}},
	} {
		cmd := exec.CommandContext(ctx, skep, step.args...)
		cmd.Env, cmd.Stdin = s.env, strings.NewReader(step.stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("skep %s: %w: %s", strings.Join(step.args, " "), err, out)
		}
	}
	var failed error
	for _, t := range suites {
		if !strings.Contains(t.pkg, only) {
			continue
		}
		if err := t.run(ctx, s.url+"/ai"); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", t.pkg, err))
		}
	}
	return failed
}

// run runs the tests, and wants each of them to have passed: one that is gone or left out proves nothing.
func (t *suite) run(ctx context.Context, base string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-json", "-run", "^("+strings.Join(t.tests, "|")+")$", t.pkg)
	cmd.Env = append(os.Environ(), "TEST_API_BASE_URL="+base, "SKIP_MOCK_TESTS=false")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	ended, said := map[string]string{}, map[string][]string{}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch e.Action {
		case "pass", "fail", "skip":
			ended[e.Test] = e.Action
		case "output", "build-output":
			said[e.Test] = append(said[e.Test], e.Output)
		}
	}
	fmt.Println(t.pkg)
	good := 0
	for _, name := range t.tests {
		how := ended[name]
		if how == "" {
			how = "not there"
		}
		fmt.Printf("  %-9s %s\n", how, name)
		if how == "pass" {
			good++
			continue
		}
		fmt.Print(strings.Join(said[name], ""))
	}
	switch {
	case good == len(t.tests) && err == nil:
		return nil
	case good == 0:
		fmt.Print(strings.Join(said[""], ""))
	}
	return fmt.Errorf("%d of %d tests passed", good, len(t.tests))
}

// answer is the provider.
func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	text, ok := answers[r.URL.Path]
	if err != nil || !ok || !json.Valid(body) {
		http.Error(w, `{"error":{"message":"the provider does not know `+r.URL.Path+`","type":"invalid_request_error"}}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

// server is skep serve.
type server struct {
	cmd *exec.Cmd
	url string
	env []string
}

func start(ctx context.Context, skep, dir string) (*server, error) {
	data := filepath.Join(dir, "data")
	s := &server{env: append(os.Environ(), "SKEP_DATA="+data, "SKEP_VAULT_KEY=file:"+filepath.Join(dir, "vault-key"))}
	s.cmd = exec.CommandContext(ctx, skep, "serve", "--json", "--listen", "127.0.0.1:0", "--data", data)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.Env, s.cmd.Stderr = s.env, os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var info struct{ URL string }
		if json.Unmarshal(lines.Bytes(), &info) == nil && info.URL != "" {
			s.url = info.URL
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return s, nil
		}
	}
	s.stop()
	return nil, errors.New("skep serve did not start")
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}
