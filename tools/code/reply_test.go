package code

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

func TestCap(t *testing.T) {
	var rows []string
	for i := range 2000 {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"name":"customer %d","notes":"%s"}`, i, i, strings.Repeat("é<", 40)))
	}
	table := `{"rows":[` + strings.Join(rows, ",") + `],"total":2000}`
	for _, c := range []struct {
		name, in string
		limit    int
		has      string
	}{
		{"a table", table, 4000, "more items"},
		{"a table in little space", table, 100, "more item"},
		{"a text", `"` + strings.Repeat("line of text\\n", 5000) + `"`, 1000, "more bytes]"},
		{"a long field", `{"a":1,"body":"` + strings.Repeat("x", 50_000) + `","z":[1,2]}`, 1000, `"z":[1,2]`},
		{"depth", strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500), 300, "field}"},
		{"more depth than is read", strings.Repeat(`[`, 5000) + strings.Repeat("]", 5000), 300, "more bytes]"},
		{"many fields", `{` + strings.Repeat(`"k":1,`, 10) + manyFields(3000) + `}`, 500, "more fields"},
		{"a long key", `{"` + strings.Repeat("k", 5000) + `":1,"b":2}`, 200, "1 more field"},
		{"no JSON", strings.Repeat("{no", 1000), 200, "more bytes]"},
		{"numbers", `[` + strings.TrimSuffix(strings.Repeat("1234567,", 5000), ",") + `]`, 500, "more items"},
	} {
		out, notice := Cap([]byte(c.in), c.limit, "artifacts/r/1.json")
		if len(out) > c.limit || !json.Valid(out) || !strings.Contains(string(out), c.has) {
			t.Errorf("%s: %d bytes: %.300s", c.name, len(out), out)
		}
		if want := fmt.Sprintf("shown are %d of %d bytes", len(out), len(c.in)); !strings.HasPrefix(notice, want) || !strings.HasSuffix(notice, "artifacts/r/1.json") {
			t.Errorf("%s: notice %q, want %q", c.name, notice, want)
		}
	}
	for in, want := range map[string]string{`{"a": 1}`: `{"a": 1}`, ``: `null`, ` 7 `: `7`, `"x"`: `"x"`} {
		if out, notice := Cap([]byte(in), 100, "x"); string(out) != want || notice != "" {
			t.Errorf("%q gives %s, %q", in, out, notice)
		}
	}
	wide := `{"a":   1,` + strings.Repeat(" ", 1000) + `"b":2}`
	if out, notice := Cap([]byte(wide), 100, ""); string(out) != `{"a":1,"b":2}` || notice != "" {
		t.Errorf("space: %s, %q", out, notice)
	}
	out, _ := Cap([]byte(table), 4000, "")
	if len(out) < 1500 {
		t.Errorf("only %d of 4000 bytes were used", len(out))
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"f%d":%d,`, i, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// What is too large to be read by its structure is cut as text, also by a limit near its size.
func TestCapHuge(t *testing.T) {
	in := slices.Clip([]byte(strings.Repeat("x", maxCapped+1)))
	if out, notice := Cap(in, 10<<20, ""); len(out) > 10<<20 || notice == "" {
		t.Errorf("%d bytes, notice %q", len(out), notice)
	}
}

func TestFrame(t *testing.T) {
	src := "const a = 1;\n\tawait tools.x.y({ a });\n" + strings.Repeat("x", 300) + "\n😀 bad\u202e();"
	for _, c := range []struct {
		p    agent.Pos
		want string
	}{
		{agent.Pos{Line: 1, Column: 7}, "1 | const a = 1;\n  |       ^"},
		{agent.Pos{Line: 2, Column: 8}, "2 |  await tools.x.y({ a });\n  |        ^"},
		{agent.Pos{Line: 2}, "2 |  await tools.x.y({ a });"},
		{agent.Pos{Line: 1, Column: 99}, "1 | const a = 1;\n  |             ^"},
		{agent.Pos{Line: 4, Column: 4}, "4 | 😀 bad();\n  |   ^"},
		{agent.Pos{Line: 9, Column: 1}, ""},
		{agent.Pos{}, ""},
	} {
		if got := Frame(src, c.p); got != c.want {
			t.Errorf("%v:\n%s\nwant\n%s", c.p, got, c.want)
		}
	}
	long := Frame(src, agent.Pos{Line: 3, Column: 200})
	rows := strings.Split(long, "\n")
	if len([]rune(rows[0])) > frameWidth+10 || []rune(rows[0])[len([]rune(rows[1]))-1] != 'x' {
		t.Errorf("a long line:\n%s", long)
	}
}

func TestReply(t *testing.T) {
	o := Outcome{
		Run: "01RUN", Status: agent.RunFailed, Source: "const a = 1;\nawait tools.fs.write({});",
		Error: &agent.RunError{Kind: agent.Failed, Msg: "fs.write: no space left", Pos: agent.Pos{File: "main.ts", Line: 2, Column: 7}},
		Calls: []agent.ToolUse{
			{Tool: "fs.read", Duration: 1500 * time.Microsecond, Decision: &agent.Decision{Verdict: agent.Allow, Effect: agent.Read}},
			{Tool: "fs.write", Error: "no space left", Decision: &agent.Decision{Verdict: agent.Allow, Effect: agent.Modify}},
		},
		Logs: []agent.LogLine{{Level: agent.LevelInfo, Message: "hello"}, {Level: agent.LevelError, Message: "oh"}},
	}
	data, err := json.MarshalIndent(NewReply(o, 0), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/reply.json", string(data)+"\n")
}

// TestReplyIsBounded fills every field with more than there is room for.
func TestReplyIsBounded(t *testing.T) {
	big := strings.Repeat("\"\\\n\u2028é", 20_000)
	o := Outcome{Run: "01RUN", Status: agent.Waiting, Output: jsonString(big), Artifact: "artifacts/x", More: 7, Source: big,
		Error: &agent.RunError{Msg: big, Hint: big, Pos: agent.Pos{File: big, Line: 1, Column: 5}, Stack: big}}
	for range 5000 {
		o.Calls = append(o.Calls, agent.ToolUse{Tool: "db.query", Error: "", Args: jsonString("select 1")})
		o.Logs = append(o.Logs, agent.LogLine{Level: agent.LevelInfo, Message: big[:3000]})
	}
	o.Calls[4000].Error, o.Calls[4000].Tool = "the one that failed", "db.drop"
	for range 64 {
		o.Asks = append(o.Asks, agent.Approval{ID: "01RUN-7", Title: big, Calls: []agent.ApprovalCall{{Tool: "a.b", Args: jsonString(big)}}, Asks: &agent.Question{Message: big}})
	}
	for _, tokens := range []int{0, 400, 1000, 20_000} {
		r := NewReply(o, tokens)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		limit := tokens * BytesPerToken
		if tokens == 0 {
			limit = DefaultTokens * BytesPerToken
		}
		if len(data) > limit || len(r.Output) < limit/10 || r.Error == nil || r.Error.Message == "" || !strings.Contains(r.Notice, "more call") || !strings.Contains(r.Notice, "artifacts/x") {
			t.Errorf("%d tokens: %d bytes, output %d, notice %q", tokens, len(data), len(r.Output), r.Notice)
		}
		if tokens >= 1000 && (len(r.Calls) < 2 || len(r.Logs) == 0 || len(r.Asks) == 0) {
			t.Errorf("%d tokens: %d calls, %d lines, %d questions", tokens, len(r.Calls), len(r.Logs), len(r.Asks))
		}
		found := false
		for _, c := range r.Calls {
			found = found || c.Error != ""
		}
		if tokens != 400 && !found {
			t.Errorf("%d tokens: the call that failed is left out", tokens)
		}
	}
}

func FuzzCap(f *testing.F) {
	for _, s := range []string{`{"a":[1,2,3]}`, `"x"`, `[[[[]]]]`, `{"a":"` + strings.Repeat("\\u00e9", 100) + `"}`, "\xff", `{"…":1}`, `1e999`} {
		f.Add([]byte(s), 64)
	}
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		limit %= 4096
		out, notice := Cap(data, limit, "")
		if !json.Valid(out) || len(out) > max(limit, minCap) {
			t.Errorf("%q to %d gives %s", data, limit, out)
		}
		if json.Valid(data) && len(data) <= limit && notice != "" {
			t.Errorf("%q fits into %d and is cut: %s", data, limit, notice)
		}
		Frame(string(data), agent.Pos{Line: limit % 5, Column: limit})
	})
}
