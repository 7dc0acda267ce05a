package script

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestNesting(t *testing.T) {
	r := strings.Repeat
	for name, tc := range map[string]struct {
		src  string
		deep bool
	}{
		"brackets at the limit":      {r("(", maxNesting) + r(")", maxNesting), false},
		"brackets past it":           {r("(", maxNesting+1), true},
		"all kinds of brackets":      {r("([{", maxNesting), true},
		"one after the other":        {r("f(x);", 100_000), false},
		"in a string":                {`x = "` + r("(", 5000) + `"`, false},
		"in a template":              {"x = `" + r("(\n", 5000) + "`", false},
		"in a comment":               {"/*" + r("(", 5000) + "*/ //" + r("[", 5000), false},
		"in a regular expression":    {"x = /" + r(`\(`, 5000) + "/", false},
		"after a division":           {"x = a / b; y = c / d;" + r("(", 5000), true},
		"closed in comments only":    {r("( /*)*/ ", 5000), true},
		"closed in strings only":     {r(`(")"+`, 5000), true},
		"operators that wait":        {"x = " + r("!", 30_000) + "1", true},
		"statements that wait":       {r("if(x)", 30_000), true},
		"arrows that wait":           {"x = " + r("()=>", 30_000) + "1", true},
		"many statements":            {r("if (x) { y = !z; }\n", 30_000), false},
		"a list of negative numbers": {"x = [" + r("-1,", 100_000) + "]", false},
		"a long sum":                 {"x = " + r("a + ", 10_000) + "1", false},
	} {
		if got := deepest([]byte(tc.src)) >= 0; got != tc.deep {
			t.Errorf("%s: deep is %v, want %v", name, got, tc.deep)
		}
	}
	err := checkNesting("a.ts", []byte("\n\n  "+r("[", maxNesting+1)))
	if e := agent.AsError(err); e == nil || e.Kind != agent.Invalid || e.Pos != (agent.Pos{File: "a.ts", Line: 3, Column: maxNesting + 3}) {
		t.Errorf("%+v", e)
	}
	if checkNesting("a.ts", []byte(r(" ", maxSource))) != nil || checkNesting("a.ts", []byte(r(" ", maxSource+1))) == nil {
		t.Error("the size of a file is not limited where it should be")
	}
}

func FuzzDeepest(f *testing.F) {
	f.Add([]byte("x = /a[(]/ + `(${y}` // (\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		if at := deepest(src); at >= len(src) {
			t.Errorf("at %d of %d", at, len(src))
		}
	})
}
