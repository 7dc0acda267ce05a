package code

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

func namesOf(list abi.Tools) []string {
	var out []string
	for _, t := range list.Tools {
		out = append(out, t.Name)
	}
	return out
}

// TestSearchRealTools asks what people ask. Each question has one answer that must be first, or among the first three.
func TestSearchRealTools(t *testing.T) {
	tools := realTools(t)
	f := NewFinder(tools, NewNames(tools))
	for _, c := range []struct {
		query, want string
		within      int
	}{
		{"filesystem.read_text_file", "filesystem.read_text_file", 1},
		{"tools.everything.get_sum", "everything.get-sum", 1},
		{"use filesystem.edit_file please", "filesystem.edit_file", 1},
		{"get-sum", "everything.get-sum", 1},
		{"read_graph", "memory.read_graph", 1},
		{"readGraph", "memory.read_graph", 1},
		{"create a pull request", "github.create_pull_request", 1},
		{"open an issue on github", "github.create_issue", 5},
		{"search repositories", "github.search_repositories", 1},
		{"screenshot", "playwright.browser_take_screenshot", 2},
		{"click a button on a web page", "playwright.browser_click", 3},
		{"list directories", "filesystem.list_directory", 3},
		{"moving files", "filesystem.move_file", 3},
		{"rename file", "filesystem.move_file", 5},
		{"git commits", "git.git_commit", 3},
		{"stash", "git.git_stash", 1},
		{"scale deployment", "kubernetes.kubectl_scale", 3},
		{"helm install", "kubernetes.install_helm_chart", 2},
		{"kill a process", "desktop-commander.kill_process", 1},
		{"knowledge graph entities", "memory.create_entities", 4},
		{"pdf", "pdf.read_pdf_bytes", 9},
		{"screensh", "playwright.browser_take_screenshot", 2},
	} {
		got, err := f.Search(abi.ToolQuery{Query: c.query}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.Index(namesOf(got), c.want); i < 0 || i >= c.within {
			t.Errorf("%q gives %q, want %s within %d", c.query, namesOf(got), c.want, c.within)
		}
	}
}

func TestSearchPicks(t *testing.T) {
	tools := named("fs.read", "fs.write", "git.read", "web.read_page")
	for i, e := range []agent.Effect{agent.Read, agent.Modify, agent.Read, agent.Unclassified} {
		tools[i].Effect = e
	}
	n := NewNames(tools)
	f := NewFinder(tools, n)
	for _, c := range []struct {
		q    abi.ToolQuery
		want string
		more int
	}{
		{abi.ToolQuery{Query: "read"}, "fs.read git.read web.read_page", 0},
		{abi.ToolQuery{Query: "read", Limit: 1}, "fs.read", 2},
		{abi.ToolQuery{Query: "read", Server: "git"}, "git.read", 0},
		{abi.ToolQuery{Query: "read", Server: "tools.git"}, "git.read", 0},
		{abi.ToolQuery{Query: "read", Effect: "read"}, "fs.read git.read", 0},
		{abi.ToolQuery{Query: "  ", Effect: "modify"}, "fs.read fs.write git.read", 0},
		{abi.ToolQuery{Query: "weather"}, "", 0},
		{abi.ToolQuery{Query: "the of"}, "", 0},
	} {
		got, err := f.Search(c.q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.Join(namesOf(got), " "); s != c.want || got.More != c.more {
			t.Errorf("%+v gives %q and %d more, want %q and %d", c.q, s, got.More, c.want, c.more)
		}
	}
	got, err := f.Search(abi.ToolQuery{Query: "read"}, func(name string) bool { return strings.HasPrefix(name, "git.") })
	if s := strings.Join(namesOf(got), " "); err != nil || s != "git.read" {
		t.Errorf("of those granted: %q, %v", s, err)
	}
	for _, q := range []abi.ToolQuery{{Server: "gti"}, {Effect: "none"}} {
		if _, err := f.Search(q, nil); err == nil || agent.AsError(err).Hint == "" {
			t.Errorf("%+v gives %v, want an error that says what to do", q, err)
		}
		if _, err := List(tools, n, q); err == nil {
			t.Errorf("a list of %+v gives no error", q)
		}
	}
}

func TestDescribe(t *testing.T) {
	tools := named("fs.read-it", "fs.write", "git.read")
	n := NewNames(tools)
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"fs.read-it"}, "declare const tools: {\n  fs: { read_it };\n};\n"},
		{[]string{"tools.fs.read_it", "fs.read-it"}, "declare const tools: {\n  fs: { read_it };\n};\n"},
		{[]string{"fs.*"}, "declare const tools: {\n  fs: { read_it, write };\n};\n"},
		{[]string{"fs"}, "declare const tools: {\n  fs: { read_it, write };\n};\n"},
		{nil, "declare const tools: {\n  fs: { read_it, write };\n  git: { read };\n};\n"},
	} {
		got, err := Describe(tools, n, abi.ToolQuery{Names: c.names, Level: "names"})
		if err != nil || got != c.want {
			t.Errorf("%q gives %q, %v, want %q", c.names, got, err, c.want)
		}
	}
	for _, q := range []abi.ToolQuery{{Names: []string{"fs.writ"}}, {Names: []string{"gut.*"}}, {Level: "huge"}, {Names: make([]string, 1001)}} {
		if _, err := Describe(tools, n, q); err == nil {
			t.Errorf("%+v gives no error", q)
		}
	}
	_, err := Describe(tools[:1], n, abi.ToolQuery{Names: []string{"git.read"}})
	if agent.KindOf(err) != agent.NotFound {
		t.Errorf("a tool that is not granted: %v", err)
	}
}

func TestSplitAndStem(t *testing.T) {
	for text, want := range map[string]string{
		"getHTTPResponse": "get http response", "read_text-file.v2": "read text file v2", "listPRs": "list prs",
		"": "", "Größe ändern": "größe ändern", "ABC": "abc",
	} {
		if got := strings.Join(split(text), " "); got != want {
			t.Errorf("split(%q) = %q, want %q", text, got, want)
		}
	}
	for _, same := range []string{"create creates created creating", "file files", "entity entities", "stop stops stopped stopping",
		"search searches searching searched", "make makes making", "issue issues", "branch branches", "box boxes"} {
		all := strings.Fields(same)
		for _, w := range all[1:] {
			if stem(w) != stem(all[0]) {
				t.Errorf("stem(%s) = %s, stem(%s) = %s", all[0], stem(all[0]), w, stem(w))
			}
		}
	}
}

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"Reads a file. And more.":                      "Reads a file.",
		"Reads a file, e.g. a.txt or v1.2 of it. More": "Reads a file, e.g. a.txt or v1.2 of it.",
		"# Title\n\nBody text here.":                   "Title",
		"Reads\n  a file\nthat is there. Yes.":         "Reads a file that is there.",
		"\n\n - item one\n - item two":                 "item one item two",
		"No end":                                       "No end",
		"":                                             "",
		"Is it? Yes.":                                  "Is it?",
		"読む。書く。":                                       "読む。",
		"Ends (or not.) Then more.":                    "Ends (or not.)",
		"a\u202eb*/c\u200b. d":                         "ab*/c.",
		"One two three four five six seven eight nine ten eleven": "One two three four five six seven…",
		"**Bold** start. Rest": "Bold** start.",
	} {
		if got := Sentence(text, 40); got != want {
			t.Errorf("Sentence(%q) = %q, want %q", text, got, want)
		}
	}
}

// many returns n tools made of the real ones.
func many(t testing.TB, n int) []agent.Tool {
	var out []agent.Tool
	real := realTools(t)
	for i := range n {
		tool := real[i%len(real)]
		tool.Server = fmt.Sprintf("%s-%d", tool.Server, i/len(real))
		tool.Name = agent.ToolName(tool.Server, tool.Method)
		out = append(out, tool)
	}
	return out
}

func BenchmarkSearch(b *testing.B) {
	tools := many(b, 5000)
	f := NewFinder(tools, NewNames(tools))
	for b.Loop() {
		if _, err := f.Search(abi.ToolQuery{Query: "create a pull request with files"}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewFinder(b *testing.B) {
	tools := many(b, 5000)
	n := NewNames(tools)
	for b.Loop() {
		NewFinder(tools, n)
	}
}

func FuzzSearch(f *testing.F) {
	tools := named("fs.read", "fs.read-it", "größe.x")
	find := NewFinder(tools, NewNames(tools))
	for _, q := range []string{"read", "fs.read", "\xff", "ＡＢ", strings.Repeat("read ", 500)} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		a, err := find.Search(abi.ToolQuery{Query: q, Server: q[:min(len(q), 1)]}, nil)
		if err == nil && len(a.Tools) > 3 {
			t.Error("more tools than there are")
		}
		if s := Sentence(q, 50); len(s) > 50 || strings.ContainsAny(s, "\n\u202e") {
			t.Errorf("Sentence = %q", s)
		}
	})
}
