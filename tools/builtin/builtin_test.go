package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// cell is the door of a cell that has files, and a host that answers with what it was asked.
type cell struct{ files map[string][]byte }

func (c *cell) call(_ context.Context, name string, in []byte) ([]byte, error) {
	switch name {
	case abi.CallFileList:
		var q abi.FileList
		json.Unmarshal(in, &q)
		out := abi.Files{}
		for _, p := range slices.Sorted(maps.Keys(c.files)) {
			if strings.HasPrefix(p, q.Prefix) && p > q.After {
				if len(out.Files) == max(q.Limit, 2) { // pages of two at the least
					out.After = out.Files[len(out.Files)-1].Path
					break
				}
				out.Files = append(out.Files, abi.FileInfo{Path: p, Type: "text/plain", Size: int64(len(c.files[p]))})
			}
		}
		return json.Marshal(out)
	case abi.CallFileRead:
		var q abi.FileRead
		json.Unmarshal(in, &q)
		b, ok := c.files[q.Path]
		if !ok {
			return nil, agent.Errorf(agent.NotFound, "there is no file %q", q.Path)
		}
		part := b[min(q.Offset, int64(len(b))):]
		if q.Length > 0 && int64(len(part)) > q.Length {
			part = part[:q.Length]
		}
		return json.Marshal(abi.FilePart{Body: part, FileInfo: abi.FileInfo{Path: q.Path, Type: "text/plain", Size: int64(len(b))}})
	case abi.CallFilePut:
		var q abi.FilePut
		json.Unmarshal(in, &q)
		c.files[q.Path] = q.Body
		return json.Marshal(abi.FileInfo{Path: q.Path, Type: q.Type, Size: int64(len(q.Body))})
	case abi.CallHTTP:
		var q abi.HTTPRequest
		json.Unmarshal(in, &q)
		body, _ := json.Marshal(map[string]any{"method": q.Method, "url": q.URL, "header": q.Header, "body": string(q.Body)})
		switch {
		case strings.HasSuffix(q.URL, "/png"):
			return json.Marshal(abi.HTTPResponse{Status: 200, Header: [][2]string{{"content-type", "image/png"}}, Body: []byte{0x89, 0, 1}})
		case strings.HasSuffix(q.URL, "/denied"):
			return nil, agent.Errorf(agent.Denied, "not granted")
		}
		return json.Marshal(abi.HTTPResponse{Status: 200, Header: [][2]string{{"Content-Type", "application/json"}}, Body: body})
	case abi.CallSkillLoad:
		var q abi.SkillLoad
		json.Unmarshal(in, &q)
		return json.Marshal(abi.SkillText{Text: `import { x } from "./lib.ts"; export default () => x`, Files: []string{"SKILL.md", "scripts/lib.ts", "scripts/sum.ts"}})
	}
	return nil, agent.Errorf(agent.Denied, "host call %q", name)
}

func options(c *cell) Options {
	return Options{
		Agents: func(context.Context, agent.App) ([]Agent, error) {
			return []Agent{{Name: "ada", Description: "counts", Functions: []string{"count"}}, {Name: "bot", Functions: []string{"run"}}, {Name: "empty"}}, nil
		},
		Declared: func(context.Context, agent.App, string) ([]tools.Offer, error) {
			return []tools.Offer{{Declared: agent.Read, Tool: agent.Tool{Method: "count"}}}, nil
		},
		Call: func(_ context.Context, _ agent.App, name, key, function string, in agent.Payload, depth int) (agent.Payload, error) {
			return agent.JSON(fmt.Appendf(nil, `"%s/%s.%s(%s) at %d"`, name, key, function, strings.ReplaceAll(string(in.Body), `"`, "'"), depth)), nil
		},
		Run: func(_ context.Context, _ agent.App, file string, files map[string]string, in agent.Payload) (agent.Payload, error) {
			return agent.JSON(fmt.Appendf(nil, `"%s of %d with %s"`, file, len(files), in.Body)), nil
		},
		DeleteFile: func(_ context.Context, _ agent.App, _ agent.SessionID, path string) error {
			if _, ok := c.files[path]; !ok {
				return agent.Errorf(agent.NotFound, "there is no file %q", path)
			}
			delete(c.files, path)
			return nil
		},
	}
}

func TestTools(t *testing.T) {
	c := &cell{files: map[string][]byte{"a.txt": []byte("one\ntwo\nthree\n"), "b/c.txt": []byte("one\n2\nthree\n"), "b/d.bin": {0, 1, 2}, "e.txt": []byte("zähl\n")}}
	opts := options(c)
	open, functions := Opener(opts), FunctionsOpener(opts)
	o := &tools.CallOptions{For: agent.ToolCall{App: agent.DefaultApp, Agent: "bot", Session: "S"}, Call: c.call, Depth: 2}
	for _, x := range []struct{ tool, args, want string }{
		{"files.list", `{"prefix":"b/"}`, `{"files":[{"path":"b/c.txt","type":"text/plain","size":12},{"path":"b/d.bin","type":"text/plain","size":3}]}`},
		{"files.read", `{"path":"a.txt","offset":4,"length":4}`, `{"path":"a.txt","type":"text/plain","size":14,"text":"two\n","next":8}`},
		{"files.read", `{"path":"e.txt","length":2}`, `{"path":"e.txt","type":"text/plain","size":6,"text":"z","next":1}`},
		{"files.read", `{"path":"b/d.bin"}`, `{"path":"b/d.bin","type":"text/plain","size":3,"base64":"AAEC"}`},
		{"files.read", `{"path":"nothing"}`, `not_found: there is no file "nothing"`},
		{"files.read", `{"pth":"a"}`, `invalid: the arguments cannot be read: json: unknown field "pth"`},
		{"files.write", `{"path":"new.txt","text":"hi","type":"text/plain"}`, `{"path":"new.txt","type":"text/plain","size":2}`},
		{"files.write", `{"path":"new.txt"}`, `invalid: give what to write as text or as base64`},
		{"files.search", `{"query":"ONE","ignore_case":true}`, `{"matches":[{"path":"a.txt","line":1,"text":"one"},{"path":"b/c.txt","line":1,"text":"one"}],"files":4}`},
		{"files.search", `{"query":"t(wo|hree)","regexp":true,"prefix":"a","limit":1}`, `{"matches":[{"path":"a.txt","line":2,"text":"two"}],"files":1,"more":true}`},
		{"files.search", `{"query":"(","regexp":true}`, "invalid: query is no text or regular expression of 1 to 1000 bytes: error parsing regexp: missing closing ): `(`"},
		{"files.diff", `{"path":"a.txt","with":"b/c.txt"}`, `{"added":1,"diff":"--- a.txt\n+++ b/c.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n","removed":1}`},
		{"files.diff", `{"path":"b/d.bin","text":"x"}`, `invalid: only files of text can be compared`},
		{"files.delete", `{"path":"a.txt"}`, `{"deleted":"a.txt"}`},
		{"files.delete", `{"path":"../a.txt"}`, `invalid: "../a.txt" is no path of a file: write NAME or FOLDER/NAME, without . and ..`},

		{"http.get", `{"url":"https://x.example/a","headers":{"B":"2","A":"1"}}`, `{"headers":{"content-type":"application/json"},"json":{"body":"","header":[["A","1"],["B","2"]],"method":"GET","url":"https://x.example/a"},"status":200}`},
		{"http.request", `{"url":"https://x.example/a","json":{"n":1}}`, `{"headers":{"content-type":"application/json"},"json":{"body":"{\"n\":1}","header":[["Content-Type","application/json"]],"method":"POST","url":"https://x.example/a"},"status":200}`},
		{"http.get", `{"url":"https://x.example/png"}`, `{"body":{"$blob":0},"headers":{"content-type":"image/png"},"status":200}`},
		{"http.get", `{"url":"https://x.example/denied"}`, `denied: not granted`},
		{"http.get", `{"url":"https://x.example/a","method":"DELETE"}`, `invalid: http.get has no method and no body; http.request does`},

		{"skills.run", `{"name":"sums","path":"scripts/sum.ts","input":[1]}`, `"scripts/sum.ts of 2 with [1]"`},
		{"skills.run", `{"name":"sums","path":"run.sh"}`, `invalid: "run.sh" is no script in JavaScript or TypeScript`},

		{"agents.ada", `{"function":"count","input":{"n":1},"key":"k"}`, `"ada/k.count({'n':1}) at 3"`},
		{"agents.bot", `{"function":"run"}`, `denied: the agent bot cannot call itself as a tool`},
		{"own.count", `{"n":1}`, `"ada/.count({'n':1}) at 3"`},
		{"own.secret", `{}`, `not_found: the agent ada declares no tool "secret"`},
	} {
		server, method, _ := agent.SplitTool(x.tool)
		opener, rec := open, agent.ToolServer{Name: server, App: agent.DefaultApp}
		if server == "own" {
			opener, rec.Agent = functions, "ada"
		}
		src, err := opener(t.Context(), rec, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := src.Call(t.Context(), method, json.RawMessage(x.args), o)
		got := string(res.Value)
		if err != nil {
			got = agent.KindOf(err).String() + ": " + agent.AsError(err).Msg
		}
		if got != x.want {
			t.Errorf("%s %s\n got %s\nwant %s", x.tool, x.args, got, x.want)
		}
	}
}

// TestUnsent has errors of calls that have done nothing marked so.
func TestUnsent(t *testing.T) {
	opts := options(&cell{})
	opts.Run = nil
	open := Opener(opts)
	for _, x := range []struct{ tool, args string }{
		{"files.none", `{}`}, {"files.list", `{}`}, {"files.delete", `{"path":"a"}`}, {"skills.run", `{"name":"a","path":"b.ts"}`}, {"http.get", `{"url":"https://x.example"}`},
	} {
		server, method, _ := agent.SplitTool(x.tool)
		src, err := open(t.Context(), agent.ToolServer{Name: server}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Call(t.Context(), method, json.RawMessage(x.args), nil); !tools.Unsent(err) {
			t.Errorf("%s: %v", x.tool, err)
		}
	}
}

// TestOffers reads what all of them say of themselves.
func TestOffers(t *testing.T) {
	open, n := Opener(options(&cell{})), 0
	for _, name := range Names() {
		src, err := open(t.Context(), agent.ToolServer{Name: name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		list, err := src.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			n++
			if o.Declared == agent.Unclassified || o.Description == "" || !json.Valid(o.Input) || len(o.Output) > 0 && !json.Valid(o.Output) {
				t.Errorf("%s.%s: %+v", name, o.Method, o)
			}
		}
	}
	if n != 18 {
		t.Errorf("%d tools", n)
	}
}
