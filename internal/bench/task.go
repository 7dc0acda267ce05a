//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tiktoken-go/tokenizer"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// taskFiles is how many files the task of figure T1 reads.
const taskFiles = 50

// taskScript does the task in code mode. The folder stands where %q is, in the form of JSON.
const taskScript = `const dir = %q;
const { content } = await tools.fs.list_directory({ path: dir });
const names = content.split("\n").map((line) => line.replace("[FILE] ", "")).filter((name) => name.endsWith(".md")).sort();
const texts = await Promise.all(names.map((name) => tools.fs.read_text_file({ path: dir + "/" + name })));
const found = names.flatMap((name, i) => (texts[i].content.match(/(?<=TODO: ).*/g) ?? []).map((todo) => name + ": " + todo));
await tools.fs.write_file({ path: dir + "/summary.txt", content: found.join("\n") });
return names.length + " files, " + found.length + " things to do";
`

// notes writes the files of the task into a new folder. Each is about two kilobytes; in every third something is to be done.
func (b *bench) notes() (dir, todos string, err error) {
	dir = filepath.Join(b.dir, "notes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	var found []string
	for i := range taskFiles {
		var text strings.Builder
		fmt.Fprintf(&text, "# Meeting %d\n\n", i)
		for line := range 24 {
			fmt.Fprintf(&text, "- item %d of meeting %d: the hive by the east wall was looked at, and all is well with it.\n", line, i)
		}
		name := fmt.Sprintf("note-%02d.md", i)
		if i%3 == 0 {
			fmt.Fprintf(&text, "TODO: order frames for hive %d\n", i)
			found = append(found, fmt.Sprintf("%s: order frames for hive %d", name, i))
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o600); err != nil {
			return "", "", err
		}
	}
	return dir, strings.Join(found, "\n"), nil
}

// addFiles adds the MCP server for files of npm, which sees dir, and allows it to write. It reports false when the server cannot be had here.
func (b *bench) addFiles(ctx context.Context, c *client.Client, dir string) (bool, error) {
	command, err := b.filesServer(ctx, dir)
	if err != nil {
		fmt.Fprintf(b.progress, "the MCP server is not here: %v\n", err)
		return false, nil
	}
	added, err := c.AddToolServer(ctx, client.NewToolServer{Name: "fs", Kind: agent.MCPStdio, Command: command, Trusted: true})
	if err != nil {
		return false, fmt.Errorf("add the MCP server: %w", err)
	}
	if added.Status.State == agent.ServerFailed {
		return false, fmt.Errorf("the MCP server does not start: %s", added.Status.Error)
	}
	if _, err := c.SetPolicy(ctx, "rules:\n  - allow fs.write_file\n", nil); err != nil {
		return false, fmt.Errorf("set the policy: %w", err)
	}
	return true, nil
}

// filesServer is the command of that server, which npm installs where it is not.
func (b *bench) filesServer(ctx context.Context, dir string) ([]string, error) {
	home := filepath.Join(b.root, "tools/mcp/testdata/servers")
	program := filepath.Join(home, "node_modules/.bin/mcp-server-filesystem")
	if _, err := os.Stat(program); err != nil {
		if err := npmCI(ctx, home); err != nil {
			return nil, err
		}
	}
	return []string{program, dir}, nil
}

// spent is what one way of doing the task took.
type spent struct {
	requests, bytes, tokens, seconds float64
}

// desk does the task and counts.
type desk struct {
	caller *caller
	count  func(string) (int, error)
	spent
}

// ask sends a request and decodes its answer.
func (d *desk) ask(path string, body, out any) error {
	in, err := json.Marshal(body)
	if err != nil {
		return err
	}
	start := time.Now()
	answer, err := d.caller.exchange(ask{path: path, contentType: "application/json", body: in})
	d.seconds += time.Since(start).Seconds()
	if err != nil {
		return err
	}
	d.requests++
	d.bytes += float64(len(in) + len(answer))
	return json.Unmarshal(answer, out)
}

// read counts what a model writes or reads.
func (d *desk) read(texts ...string) error {
	for _, text := range texts {
		n, err := d.count(text)
		if err != nil {
			return err
		}
		d.tokens += float64(n)
	}
	return nil
}

// inCode does the task by one script. A model writes the script and reads the reply.
func (d *desk) inCode(dir string) error {
	script := fmt.Sprintf(taskScript, dir)
	var res struct {
		Reply json.RawMessage `json:"reply"`
	}
	if err := d.ask("/v1/code", map[string]any{"code": script, "tools": []string{"fs.*"}, "max_tokens": 2000}, &res); err != nil {
		return err
	}
	if !strings.Contains(string(res.Reply), fmt.Sprintf("%d files, 17 things to do", taskFiles)) {
		return fmt.Errorf("the script's reply is %s", res.Reply)
	}
	return d.read(script, string(res.Reply))
}

// call makes one call of a tool. A model writes its name and arguments and reads its value.
func (d *desk) call(tool string, args map[string]string) (string, error) {
	var res struct {
		Output struct {
			JSON struct {
				Content string `json:"content"`
			} `json:"json"`
		} `json:"output"`
		Error json.RawMessage `json:"error"`
	}
	if err := d.ask("/v1/tools/"+tool+"/call", map[string]any{"args": args}, &res); err != nil {
		return "", err
	}
	content := res.Output.JSON.Content
	if content == "" {
		return "", fmt.Errorf("%s returned nothing: %s", tool, res.Error)
	}
	in, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	return content, d.read(tool, string(in), content)
}

// byCalls does the task by a call for each file.
func (d *desk) byCalls(dir string) error {
	list, err := d.call("fs.list_directory", map[string]string{"path": dir})
	if err != nil {
		return err
	}
	var found []string
	for line := range strings.Lines(list) {
		name := strings.TrimSpace(strings.TrimPrefix(line, "[FILE] "))
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		text, err := d.call("fs.read_text_file", map[string]string{"path": dir + "/" + name})
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if todo, ok := strings.CutPrefix(line, "TODO: "); ok {
				found = append(found, name+": "+strings.TrimSpace(todo))
			}
		}
	}
	_, err = d.call("fs.write_file", map[string]string{"path": dir + "/summary.txt", "content": strings.Join(found, "\n")})
	return err
}

// fiftyFiles is figure T1: the task of reading 50 files, finding lines in them and writing a summary, by a script and by single calls.
func fiftyFiles(ctx context.Context, b *bench) ([]Figure, error) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	s, err := b.startSkep(ctx, filepath.Join(b.dir, "task"), "--isolation", "inline")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	dir, want, err := b.notes()
	if err != nil {
		return nil, err
	}
	if there, err := b.addFiles(ctx, client.New("http://"+s.addr, s.token, nil), dir); err != nil || !there {
		return nil, err
	}
	conn, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer conn.conn.Close()
	ways := [2]func(*desk) error{
		func(d *desk) error { return d.inCode(dir) },
		func(d *desk) error { return d.byCalls(dir) },
	}
	var did [2][]spent
	for round := range 1 + b.count(8, 3) {
		for i := range ways {
			way := (i + round) % 2
			d := &desk{caller: conn, count: codec.Count}
			if err := ways[way](d); err != nil {
				return nil, err
			}
			summary := filepath.Join(dir, "summary.txt")
			if got, err := os.ReadFile(summary); err != nil || string(got) != want {
				return nil, fmt.Errorf("the summary is wrong: %v\n%s", err, got)
			}
			if err := os.Remove(summary); err != nil {
				return nil, err
			}
			if round > 0 { // the first warms up
				did[way] = append(did[way], d.spent)
			}
		}
	}
	figure := func(what string, u Unit, of func(spent) float64) Figure {
		var ours, theirs []float64
		for i := range did[0] {
			ours, theirs = append(ours, of(did[0][i])), append(theirs, of(did[1][i]))
		}
		return compare("T1", fmt.Sprintf("read %d files and sum up, %s", taskFiles, what), u, ours, theirs, "single calls", Target{})
	}
	return []Figure{
		figure("requests", NoUnit, func(s spent) float64 { return s.requests }),
		figure("tokens that a model writes and reads", NoUnit, func(s spent) float64 { return s.tokens }),
		figure("bytes in and out", Bytes, func(s spent) float64 { return s.bytes }),
		figure("time", Seconds, func(s spent) float64 { return s.seconds }),
	}, nil
}
