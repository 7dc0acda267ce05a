package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/driver"
)

// taskFlags say what an agent that a command-line agent runs is to work on, and where its changes go.
type taskFlags struct {
	repo, ref, commit, branch, patch string
	attach                           []string
	apply                            bool
}

func (f *taskFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.repo, "repo", "", "what it works on: the `URL` of a git repository, or a folder of yours, of which a copy is sent")
	flags.StringVar(&f.ref, "ref", "", "branch, tag or commit of --repo URL")
	flags.StringVar(&f.commit, "commit", "", "have the changes in a commit with this message, as a bundle of git")
	flags.StringVar(&f.branch, "branch", "", "the branch of that commit")
	flags.StringArrayVar(&f.attach, "attach", nil, "a `FILE` that it may read; may be given more than once")
	flags.StringVar(&f.patch, "patch", "", "write what it has changed to this `FILE`, which must not be there")
	flags.BoolVar(&f.apply, "apply", false, "apply what it has changed to the folder of --repo")
}

var taskFlagNames = []string{"repo", "ref", "commit", "branch", "attach", "patch", "apply"}

// worker reports whether the run is a task in words: of an agent that has no code, or by a flag that only those have.
func (f *taskFlags) worker(cmd *cobra.Command, cl *client.Client, args []string) (bool, error) {
	given := ""
	for _, name := range taskFlagNames {
		if cmd.Flags().Changed(name) {
			given = name
		}
	}
	if len(args) > 2 && given == "" {
		return false, nil
	}
	a, err := cl.Agent(cmd.Context(), args[0])
	if err != nil {
		return false, err
	}
	works := a.Plugin == "" && a.Sandbox != nil && a.Sandbox.CLI != ""
	switch {
	case !works && given != "":
		return false, usageError("--%s is for an agent whose work a CLI does in a sandbox, and %s is none: see skep agent create --help for --cli", given, a.Name)
	case works && len(args) != 2:
		return false, usageError("say what it is to do, in one argument: skep run %s \"TASK\"", a.Name)
	case f.patch != "" && exists(f.patch):
		return false, &agent.Error{Kind: agent.Exists, Msg: f.patch + " is there already", Hint: "name another file with --patch"}
	case f.apply && (f.repo == "" || isURL(f.repo) || f.commit != ""):
		return false, usageError("--apply is for a folder of yours: give --repo FOLDER, and no --commit")
	case f.ref != "" && !isURL(f.repo):
		return false, usageError("--ref is for a repository that is cloned: give --repo URL; of a folder of yours, what is checked out is sent")
	case f.branch != "" && f.commit == "":
		return false, usageError("--branch is that of a commit: give --commit MESSAGE, too")
	}
	return works, driver.CheckRepoURL(f.repo)
}

// repoFile is where a folder is kept in the session whose run works on it.
const repoFile = "repo.tar"

// input puts into a session what the task needs, and makes the run's input.
func (f *taskFlags) input(ctx context.Context, cl *client.Client, args []string, start *client.NewRun) error {
	in := map[string]any{"task": args[1]}
	for name, value := range map[string]string{"ref": f.ref, "commit": f.commit, "branch": f.branch} {
		if value != "" {
			in[name] = value
		}
	}
	folder := f.repo != "" && !isURL(f.repo)
	if f.repo != "" && !folder {
		in["repo"] = f.repo
	}
	files, err := f.pack(folder)
	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()
	if err != nil {
		return err // before there is a session, which would be left empty
	}
	if len(files) > 0 && start.Session == "" {
		se, err := cl.CreateSession(ctx, client.NewSession{Agent: args[0], Key: start.Key})
		if err != nil {
			return err
		}
		start.Session, start.Key = se.ID, ""
	}
	var paths []string
	for _, file := range files {
		if _, err := cl.PutFile(ctx, start.Session, file.to, "", nil, file, file.size); err != nil {
			return err
		}
		if file.to == repoFile {
			in["repo"] = map[string]string{"file": repoFile}
			continue
		}
		paths = append(paths, file.to)
	}
	if len(paths) > 0 {
		in["attachments"] = paths
	}
	start.Input, err = json.Marshal(in)
	return err
}

// sent is a file that a session is given, and its path there.
type sent struct {
	*os.File
	to   string
	size int64
}

// pack opens what the task needs of the caller's files. The caller closes what is returned, also with an error.
func (f *taskFlags) pack(folder bool) (files []sent, err error) {
	add := func(to string, file *os.File) error {
		st, err := file.Stat()
		if err != nil {
			_ = file.Close()
			return err
		}
		files = append(files, sent{file, to, st.Size()})
		if st.Size() > agent.MaxFile {
			return &agent.Error{
				Kind: agent.Exhausted, Limit: agent.LimitInput, Msg: fmt.Sprintf("what is to be sent as %s is %s, and a file of a session has up to %s", to, size(st.Size()), size(agent.MaxFile)),
				Hint: "let git ignore what is made of other files, or give the URL of a repository",
			}
		}
		return nil
	}
	if folder {
		tar, err := packFolder(f.repo)
		if err == nil {
			err = add(repoFile, tar)
		}
		if err != nil {
			return files, err
		}
	}
	for _, name := range f.attach {
		file, err := os.Open(name)
		if err != nil {
			return files, &agent.Error{Kind: agent.Invalid, Msg: "cannot read " + name, Err: err}
		}
		if err := add(attached(files, filepath.Base(name)), file); err != nil {
			return files, err
		}
	}
	return files, nil
}

// attached is where a file of that name goes in the session: into a folder of its own when there is another of its name.
func attached(files []sent, name string) string {
	taken := func(path string) bool { return slices.ContainsFunc(files, func(s sent) bool { return s.to == path }) }
	path := "attachments/" + name
	for n := 2; taken(path); n++ {
		path = "attachments/" + strconv.Itoa(n) + "/" + name
	}
	return path
}

// outcome is what a run of a task returns.
type outcome struct {
	Status  string               `json:"status"`
	Patch   string               `json:"patch"`
	Bundle  string               `json:"bundle"`
	Commit  string               `json:"commit"`
	Used    string               `json:"used"`
	Changed []client.ChangedFile `json:"changed"`
}

// bring tells what was changed, and brings it where the flags say.
func (f *taskFlags) bring(ctx context.Context, c *cli, cl *client.Client, r agent.Run) error {
	r, err := cl.Run(ctx, r.ID)
	if err != nil || r.Output == nil {
		return err
	}
	var out outcome
	if err := json.Unmarshal(r.Output.Body, &out); err != nil {
		return nil // not the output of a task
	}
	if err := c.tellUsed(ctx, cl, r.Session, out.Used); err != nil {
		return err
	}
	made, what := out.Patch, "patch"
	if out.Bundle != "" {
		made, what = out.Bundle, "bundle"
	}
	if made == "" {
		c.notef("nothing was changed\n")
		return nil
	}
	switch {
	case f.apply:
		err = f.applyTo(ctx, cl, r.Session, out.Patch)
	case f.patch != "":
		err = save(ctx, cl, r.Session, made, f.patch)
	default:
		c.notef("changed files: %d; skep file get %s %s has the %s\n", len(out.Changed), r.Session, made, what)
		return nil
	}
	if err == nil && !c.json {
		c.printChanges(out.Changed)
	}
	return err
}

// maxUsed is the most that is read of what a task has used.
const maxUsed = 1 << 20

// tellUsed tells what a task has used, which is in a file of its session.
func (c *cli) tellUsed(ctx context.Context, cl *client.Client, session agent.SessionID, path string) error {
	if path == "" {
		return nil
	}
	in, err := cl.File(ctx, session, path, 0, maxUsed)
	if err != nil {
		return err
	}
	defer in.Close()
	var used struct {
		Total   agent.ModelSum `json:"total"`
		Sandbox struct {
			Wall time.Duration `json:"wall"`
		} `json:"sandbox"`
	}
	if err := json.NewDecoder(in).Decode(&used); err != nil {
		return agent.Wrap(agent.Unavailable, err, "what the task has used cannot be read: "+path)
	}
	c.notef("used: %s, %s in the sandbox; skep file get %s %s has it by model\n", modelsUsed(used.Total), lasting(used.Sandbox.Wall), session, path)
	return nil
}

// modelsUsed tells of calls of models in a line.
func modelsUsed(m agent.ModelSum) string {
	if m.Calls == 0 {
		return "no model"
	}
	s := fmt.Sprintf("%d calls of models, %d tokens in and %d out", m.Calls, m.Tokens.Input, m.Tokens.Output)
	if m.Calls == 1 {
		s = strings.Replace(s, "calls", "call", 1)
	}
	if m.Micro != nil {
		s += ", " + money(*m.Micro)
	}
	if m.Unpriced > 0 {
		s += fmt.Sprintf(", %d of them without a known price", m.Unpriced)
	}
	return s
}

// save writes a file of a session to a file that must not be there.
func save(ctx context.Context, cl *client.Client, session agent.SessionID, path, to string) error {
	in, err := cl.File(ctx, session, path, 0, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "cannot write " + to, Err: err}
	}
	_, err = io.Copy(f, in)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(to)
		return agent.Wrap(agent.Unavailable, err, "the patch did not arrive whole")
	}
	return nil
}

// applyTo applies a patch to the folder that the task was about. What git refuses changes nothing.
func (f *taskFlags) applyTo(ctx context.Context, cl *client.Client, session agent.SessionID, path string) error {
	in, err := cl.File(ctx, session, path, 0, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	patch, err := io.ReadAll(in)
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "the patch did not arrive whole")
	}
	git := exec.CommandContext(ctx, "git", "-C", f.repo, "apply", "--whitespace=nowarn", "-")
	git.Stdin = bytes.NewReader(patch)
	var told bytes.Buffer
	git.Stderr = &told
	if err := git.Run(); err != nil {
		return &agent.Error{
			Kind: agent.Conflict, Msg: "the patch does not apply to " + f.repo + ": " + strings.TrimSpace(told.String()), Err: err,
			Hint: fmt.Sprintf("nothing was changed there; skep file get %s %s has the patch", session, path),
		}
	}
	return nil
}
