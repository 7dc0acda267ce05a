package code

import (
	"sync"
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/code/codetest"
)

var o200k = sync.OnceValues(func() (tokenizer.Codec, error) { return tokenizer.Get(tokenizer.O200kBase) })

// tokens counts as the models of OpenAI since GPT-4o do.
func tokens(t *testing.T, text string) int {
	t.Helper()
	codec, err := o200k()
	if err != nil {
		t.Fatal(err)
	}
	n, err := codec.Count(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func realTools(t testing.TB) []agent.Tool {
	t.Helper()
	tools, err := codetest.Tools()
	if err != nil {
		t.Fatal(err)
	}
	return tools
}
