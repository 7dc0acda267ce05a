package client

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// PutEnvironment sets an environment: its next revision, unless nothing of it has changed.
func (c *Client) PutEnvironment(ctx context.Context, env agent.Environment) (out agent.Environment, err error) {
	body, err := sent(env, "revision")
	if err != nil {
		return out, err
	}
	return out, c.do(ctx, http.MethodPut, path("environments", env.Name), nil, body, &out)
}

// Environments lists environments in their newest revisions, by name.
func (c *Client) Environments(ctx context.Context, p agent.Page) (List[agent.Environment], error) {
	return get[List[agent.Environment]](ctx, c, path("environments")+pageQuery(p).encode())
}

// Environment returns NAME in its newest revision, or NAME@REVISION.
func (c *Client) Environment(ctx context.Context, name string) (agent.Environment, error) {
	return get[agent.Environment](ctx, c, path("environments", name))
}

// EnvironmentRevisions lists the revisions of an environment, oldest first.
func (c *Client) EnvironmentRevisions(ctx context.Context, name string, p agent.Page) (List[agent.Environment], error) {
	return get[List[agent.Environment]](ctx, c, path("environments", name, "revisions")+pageQuery(p).encode())
}

// DeleteEnvironment deletes an environment that no agent names.
func (c *Client) DeleteEnvironment(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, path("environments", name), nil, nil, nil)
}

// SandboxProviders lists where the server can make sandboxes, and what each has.
func (c *Client) SandboxProviders(ctx context.Context) ([]agent.SandboxProvider, error) {
	l, err := get[List[agent.SandboxProvider]](ctx, c, path("sandboxes", "providers"))
	return l.Items, err
}

// OpenSandbox opens a sandbox of an agent, and waits until it can be used: a pet's own, else one for the caller, who deletes it.
func (c *Client) OpenSandbox(ctx context.Context, agentName string, session agent.SessionID) (sb agent.Sandbox, err error) {
	body := map[string]any{"agent": agentName}
	if session != "" {
		body["session"] = session
	}
	return sb, c.do(ctx, http.MethodPost, path("sandboxes"), nil, body, &sb)
}

// Sandboxes lists sandboxes, newest first; of one agent when it is named.
func (c *Client) Sandboxes(ctx context.Context, agentName string, p agent.Page) (List[agent.Sandbox], error) {
	q := pageQuery(p)
	q["agent"] = agentName
	return get[List[agent.Sandbox]](ctx, c, path("sandboxes")+q.encode())
}

// Sandbox returns a sandbox.
func (c *Client) Sandbox(ctx context.Context, id agent.SandboxID) (agent.Sandbox, error) {
	return get[agent.Sandbox](ctx, c, path("sandboxes", string(id)))
}

// DeleteSandbox deletes a sandbox, with what is kept of a pet.
func (c *Client) DeleteSandbox(ctx context.Context, id agent.SandboxID) error {
	return c.do(ctx, http.MethodDelete, path("sandboxes", string(id)), nil, nil, nil)
}

// RecreateSandbox makes a pet anew: in the newest revision of its environment, with nothing of what was kept of it but its checkpoint, which is taken first.
// It returns when the new one can be used.
func (c *Client) RecreateSandbox(ctx context.Context, id agent.SandboxID) (agent.Sandbox, error) {
	return c.changePet(ctx, id, "recreate")
}

// HibernateSandbox takes the checkpoint of a pet, and deletes all else of it. Its next use makes it anew, with what the checkpoint has.
func (c *Client) HibernateSandbox(ctx context.Context, id agent.SandboxID) (agent.Sandbox, error) {
	return c.changePet(ctx, id, "hibernate")
}

// ResetSandbox deletes all that is kept of a pet, with its checkpoint. Its next use begins with nothing.
func (c *Client) ResetSandbox(ctx context.Context, id agent.SandboxID) (agent.Sandbox, error) {
	return c.changePet(ctx, id, "reset")
}

func (c *Client) changePet(ctx context.Context, id agent.SandboxID, verb string) (sb agent.Sandbox, err error) {
	return sb, c.do(ctx, http.MethodPost, path("sandboxes", string(id), verb), nil, nil, &sb)
}

// SandboxManifest is what the checkpoint of a pet has.
type SandboxManifest struct {
	Sandbox     agent.SandboxID `json:"sandbox"`
	Generation  int64           `json:"generation"`
	Environment string          `json:"environment"` // NAME@REVISION
	Created     time.Time       `json:"created"`
	Digest      agent.Digest    `json:"digest"` // of the tar
	Bytes       int64           `json:"bytes"`  // of the tar
	Files       []SavedFile     `json:"files"`
}

// SavedFile is a file of a checkpoint.
type SavedFile struct {
	Path   string `json:"path"` // within the workspace
	Type   string `json:"type"` // file, dir, link
	Mode   int64  `json:"mode"`
	Size   int64  `json:"size"`
	Digest string `json:"sha256,omitempty"`
	Target string `json:"target,omitempty"` // of a link
}

// SandboxCheckpoint returns what the newest checkpoint of a pet has.
func (c *Client) SandboxCheckpoint(ctx context.Context, id agent.SandboxID) (SandboxManifest, error) {
	return get[SandboxManifest](ctx, c, path("sandboxes", string(id), "checkpoint"))
}

// Exec is a program to run in a sandbox.
type Exec struct {
	Command    []string          `json:"command"` // one entry is a line for sh
	Dir        string            `json:"dir,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Stdin      string            `json:"stdin,omitempty"`
	Timeout    time.Duration     `json:"timeout,omitempty"` // 10 minutes unless given
	Background bool              `json:"background,omitempty"`
	Output     int64             `json:"output,omitempty"` // most bytes of each output in an ExecResult; 64 KiB unless given
}

// ExecResult is how a program ended.
type ExecResult struct {
	ID       string `json:"id,omitempty"` // for SignalProcess
	Code     int    `json:"code"`         // -1 when by a signal
	Signal   string `json:"signal,omitempty"`
	OOM      bool   `json:"oom,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Stdout   string `json:"stdout,omitempty"`
	Stderr   string `json:"stderr,omitempty"`
	Dropped  int64  `json:"dropped,omitempty"` // bytes that are not in these
	PID      int    `json:"pid,omitempty"`     // of one in the background
}

// Exec runs a program and waits for its end; for its beginning in the background. When ctx ends before, the program is ended, unless it is in the background.
func (c *Client) Exec(ctx context.Context, id agent.SandboxID, x Exec) (res ExecResult, err error) {
	return res, c.do(ctx, http.MethodPost, path("sandboxes", string(id), "exec"), nil, x, &res)
}

// ExecOutput is a piece of a program's output as it comes. The first has its ID, the last how it ended.
type ExecOutput struct {
	ID     string      `json:"id,omitempty"`
	Stdout string      `json:"stdout,omitempty"`
	Stderr string      `json:"stderr,omitempty"`
	Exit   *ExecResult `json:"exit,omitempty"`
}

// ExecStream runs a program and yields its output as it comes. When the caller stops, the program is ended, at the latest some 30 s later.
func (c *Client) ExecStream(ctx context.Context, id agent.SandboxID, x Exec) iter.Seq2[ExecOutput, error] {
	return func(yield func(ExecOutput, error) bool) {
		body, err := json.Marshal(x)
		if err != nil {
			yield(ExecOutput{}, err)
			return
		}
		res, err := c.send(ctx, http.MethodPost, path("sandboxes", string(id), "exec"), header{"Accept": "application/x-ndjson", "Content-Type": "application/json"}, body)
		if err != nil {
			yield(ExecOutput{}, err)
			return
		}
		defer res.Body.Close()
		ended := false
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if len(lines.Bytes()) == 0 {
				continue
			}
			var line struct {
				ExecOutput
				Error *problem `json:"error"`
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				yield(ExecOutput{}, agent.Wrap(agent.Unavailable, err, "the output of the program cannot be read"))
				return
			}
			if line.Error != nil && line.Error.Kind != nil {
				yield(ExecOutput{}, line.Error.error(0))
				return
			}
			ended = line.Exit != nil
			if !yield(line.ExecOutput, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil || !ended {
			yield(ExecOutput{}, agent.Wrap(agent.Unavailable, err, "the connection ended before the program did"))
		}
	}
}

// SandboxProcess is a program that was started in a sandbox.
type SandboxProcess struct {
	ID      string    `json:"id"`
	PID     int       `json:"pid"`
	Command []string  `json:"command"`
	Started time.Time `json:"started"`
	Ended   bool      `json:"ended,omitempty"`
	Code    int       `json:"code,omitempty"`
}

// SandboxProcesses lists the programs that were started in a sandbox.
func (c *Client) SandboxProcesses(ctx context.Context, id agent.SandboxID) ([]SandboxProcess, error) {
	l, err := get[List[SandboxProcess]](ctx, c, path("sandboxes", string(id), "processes"))
	return l.Items, err
}

// SignalProcess sends a signal, such as INT, to a program and all that it has started; "" is TERM, followed by KILL.
func (c *Client) SignalProcess(ctx context.Context, id agent.SandboxID, process, signal string) error {
	return c.do(ctx, http.MethodPost, path("sandboxes", string(id), "processes", process, "signal"), nil, map[string]string{"signal": signal}, nil)
}

// SandboxFile is a file in a sandbox.
type SandboxFile struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"` // file, dir, link, other
	Size     int64     `json:"size"`
	Mode     uint32    `json:"mode"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"` // of a link
}

// SandboxFiles is a folder of a sandbox. More says that there are more files than were listed.
type SandboxFiles struct {
	Files []SandboxFile `json:"files"`
	More  bool          `json:"more,omitempty"`
}

// SandboxList lists a folder of a sandbox: absolute, or within the workspace.
func (c *Client) SandboxList(ctx context.Context, id agent.SandboxID, dir string, recursive bool) (SandboxFiles, error) {
	return get[SandboxFiles](ctx, c, path("sandboxes", string(id), "list")+query{"dir": dir, "recursive": truth(recursive)}.encode())
}

func truth(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// inSandbox is the path of a file of a sandbox. The slash that an absolute one begins with is escaped.
func inSandbox(id agent.SandboxID, file string) string {
	return path("sandboxes", string(id), "files", file)
}

// ReadSandbox opens a file of a sandbox, or a tar archive of a folder with ReadArchive.
func (c *Client) ReadSandbox(ctx context.Context, id agent.SandboxID, file string) (io.ReadCloser, error) {
	return c.body(ctx, inSandbox(id, file))
}

func (c *Client) body(ctx context.Context, target string) (io.ReadCloser, error) {
	res, err := c.send(ctx, http.MethodGet, target, header{}, nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// WriteSandbox writes size bytes of body as a file of a sandbox, whole or not at all.
func (c *Client) WriteSandbox(ctx context.Context, id agent.SandboxID, file string, mode uint32, body io.ReadSeeker, size int64) (f SandboxFile, err error) {
	q := query{}
	if mode != 0 {
		q["mode"] = strconv.FormatUint(uint64(mode), 10)
	}
	res, err := c.sendBody(ctx, http.MethodPut, inSandbox(id, file)+q.encode(), header{"Content-Type": "application/octet-stream"}, body, size)
	if err != nil {
		return f, err
	}
	return f, c.decode(ctx, res, &f)
}

// DeleteInSandbox deletes a file of a sandbox; a folder with recursive.
func (c *Client) DeleteInSandbox(ctx context.Context, id agent.SandboxID, file string, recursive bool) error {
	return c.do(ctx, http.MethodDelete, inSandbox(id, file)+query{"recursive": truth(recursive)}.encode(), nil, nil, nil)
}

// ReadArchive opens a tar archive of a folder of a sandbox, or of one path in it.
func (c *Client) ReadArchive(ctx context.Context, id agent.SandboxID, dir, only string) (io.ReadCloser, error) {
	return c.body(ctx, path("sandboxes", string(id), "archive")+query{"dir": dir, "path": only}.encode())
}

// WriteArchive unpacks a tar archive of size bytes in a folder of a sandbox.
func (c *Client) WriteArchive(ctx context.Context, id agent.SandboxID, dir string, body io.ReadSeeker, size int64) error {
	res, err := c.sendBody(ctx, http.MethodPut, path("sandboxes", string(id), "archive")+query{"dir": dir}.encode(), header{"Content-Type": "application/x-tar"}, body, size)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// Repo is what the workspace of a sandbox begins with.
type Repo struct {
	Commit string `json:"commit"`
	Branch string `json:"branch,omitempty"`
	Files  int    `json:"files"`
}

// CloneRepo clones a git repository into the workspace.
func (c *Client) CloneRepo(ctx context.Context, id agent.SandboxID, url, ref string) (r Repo, err error) {
	return r, c.do(ctx, http.MethodPost, path("sandboxes", string(id), "repo"), nil, map[string]string{"url": url, "ref": ref}, &r)
}

// PutRepo unpacks a tar archive of size bytes as what the workspace begins with.
func (c *Client) PutRepo(ctx context.Context, id agent.SandboxID, body io.ReadSeeker, size int64) (r Repo, err error) {
	res, err := c.sendBody(ctx, http.MethodPut, path("sandboxes", string(id), "repo"), header{"Content-Type": "application/x-tar"}, body, size)
	if err != nil {
		return r, err
	}
	return r, c.decode(ctx, res, &r)
}

// Changes lists what was changed in the workspace.
type Changes struct {
	Base    string        `json:"base"`
	Bytes   int64         `json:"bytes"`
	Changed []ChangedFile `json:"changed"`
	Files   int           `json:"files"`
}

// ChangedFile is one of them. Counts of lines are -1 for what is no text.
type ChangedFile struct {
	Path    string `json:"path"`
	Op      string `json:"op"` // add, change, delete, rename
	From    string `json:"from,omitempty"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// SandboxChanges lists what was changed in the workspace since its repository came, or since the commit base.
func (c *Client) SandboxChanges(ctx context.Context, id agent.SandboxID, base string) (Changes, error) {
	return get[Changes](ctx, c, path("sandboxes", string(id), "changes")+query{"base": base}.encode())
}

// SandboxDiff opens the same as a patch of git.
func (c *Client) SandboxDiff(ctx context.Context, id agent.SandboxID, base string) (io.ReadCloser, error) {
	return c.body(ctx, path("sandboxes", string(id), "diff")+query{"base": base}.encode())
}

// String tells how a program ended, in a word or two.
func (r ExecResult) String() string {
	var how []string
	switch {
	case r.TimedOut:
		how = append(how, "timed out")
	case r.Signal != "":
		how = append(how, "ended by "+r.Signal)
	default:
		how = append(how, "exit status "+strconv.Itoa(r.Code))
	}
	if r.OOM {
		how = append(how, "out of memory")
	}
	return strings.Join(how, ", ")
}

// PortLink is a link to what listens at a port of a sandbox. Whoever has it can use it.
type PortLink struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// LinkPort makes a link that lasts so long; an hour for 0.
func (c *Client) LinkPort(ctx context.Context, id agent.SandboxID, port int, lasts time.Duration) (l PortLink, err error) {
	return l, c.do(ctx, http.MethodPost, path("sandboxes", string(id), "ports", strconv.Itoa(port), "link"), nil, map[string]time.Duration{"for": lasts}, &l)
}
