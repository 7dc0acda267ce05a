package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/sandbox/keeper"
)

// sandboxRoutes are the endpoints of sandboxes and of their environments.
func (s *Server) sandboxRoutes() []route {
	return append(append(s.portRoutes(), s.petRoutes()...), []route{
		{method: "PUT", path: "/v1/environments/{name}", id: "putEnvironment", summary: "Set an environment of sandboxes: its next revision", owner: "set environments", endpoint: handle(s.putEnvironment)},
		{method: "GET", path: "/v1/environments", id: "listEnvironments", summary: "List environments in their newest revisions, by name", endpoint: handle(s.listEnvironments)},
		{method: "GET", path: "/v1/environments/{name}", id: "getEnvironment", summary: "Show an environment, or one revision of it", endpoint: handle(s.getEnvironment)},
		{method: "GET", path: "/v1/environments/{name}/revisions", id: "listEnvironmentRevisions", summary: "List the revisions of an environment, oldest first", endpoint: handle(s.listRevisions)},
		{method: "DELETE", path: "/v1/environments/{name}", id: "deleteEnvironment", summary: "Delete an environment that no agent names", status: 204, owner: "delete environments", endpoint: handle(s.deleteEnvironment)},

		{method: "GET", path: "/v1/sandboxes/providers", id: "listSandboxProviders", summary: "List where sandboxes can be made, and what each has", endpoint: handle(s.listSandboxProviders)},
		{method: "POST", path: "/v1/sandboxes", id: "openSandbox", summary: "Open a sandbox of an agent: a pet's own, else one for the caller", status: 201, endpoint: handle(s.openSandbox)},
		{method: "GET", path: "/v1/sandboxes", id: "listSandboxes", summary: "List sandboxes, newest first", endpoint: handle(s.listSandboxes)},
		{method: "GET", path: "/v1/sandboxes/{id}", id: "getSandbox", summary: "Show a sandbox", endpoint: handle(s.getSandbox)},
		{method: "DELETE", path: "/v1/sandboxes/{id}", id: "deleteSandbox", summary: "Delete a sandbox, with what is kept of a pet", status: 204, endpoint: handle(s.deleteSandbox)},
		{method: "POST", path: "/v1/sandboxes/{id}/exec", id: "execSandbox", summary: "Run a program in a sandbox; as NDJSON with its output as it comes", endpoint: handle(s.execSandbox),
			media: []string{typeJSON, typeNDJSON}, results: map[int]reflect.Type{http.StatusOK: reflect.TypeFor[driver.ExecResult]()}},
		{method: "GET", path: "/v1/sandboxes/{id}/processes", id: "listProcesses", summary: "List the programs that were started in a sandbox", endpoint: handle(s.listProcesses)},
		{method: "POST", path: "/v1/sandboxes/{id}/processes/{process}/signal", id: "signalProcess", summary: "Send a signal to a program and all that it has started", status: 204, endpoint: handle(s.signalProcess)},
		{method: "GET", path: "/v1/sandboxes/{id}/list", id: "listSandboxFiles", summary: "List files of a sandbox", endpoint: handle(s.listSandboxFiles)},
		{method: "GET", path: "/v1/sandboxes/{id}/files/{path}", id: "getSandboxFile", summary: "Read a file of a sandbox", endpoint: handle(s.getSandboxFile), media: []string{typeAny}},
		{method: "PUT", path: "/v1/sandboxes/{id}/files/{path}", id: "putSandboxFile", summary: "Write a file of a sandbox, whole or not at all", endpoint: handle(s.putSandboxFile), limit: maxSandboxBody},
		{method: "DELETE", path: "/v1/sandboxes/{id}/files/{path}", id: "deleteSandboxFile", summary: "Delete a file of a sandbox", status: 204, endpoint: handle(s.deleteSandboxFile)},
		{method: "GET", path: "/v1/sandboxes/{id}/archive", id: "getSandboxArchive", summary: "Download files of a sandbox as a tar archive", endpoint: handle(s.getSandboxArchive), media: []string{typeTar}},
		{method: "PUT", path: "/v1/sandboxes/{id}/archive", id: "putSandboxArchive", summary: "Unpack a tar archive in a sandbox", status: 204, endpoint: handle(s.putSandboxArchive), limit: maxSandboxBody},
		{method: "POST", path: "/v1/sandboxes/{id}/repo", id: "cloneSandboxRepo", summary: "Clone a git repository into the workspace of a sandbox", endpoint: handle(s.cloneSandboxRepo)},
		{method: "PUT", path: "/v1/sandboxes/{id}/repo", id: "putSandboxRepo", summary: "Unpack a tar archive as what the workspace of a sandbox begins with", endpoint: handle(s.putSandboxRepo), limit: maxSandboxBody},
		{method: "GET", path: "/v1/sandboxes/{id}/diff", id: "diffSandbox", summary: "Show what was changed in the workspace, as a patch of git", endpoint: handle(s.diffSandbox), media: []string{typePatch}},
		{method: "GET", path: "/v1/sandboxes/{id}/changes", id: "listSandboxChanges", summary: "List what was changed in the workspace", endpoint: handle(s.listSandboxChanges)},
	}...)
}

const (
	maxSandboxBody = 4 << 30

	typeTar   = "application/x-tar"
	typePatch = "text/x-diff"
)

func (s *Server) keeper() (*keeper.Keeper, error) {
	if s.o.Sandboxes == nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "this server has no sandboxes", Hint: "start Docker or Podman on its machine, then skep serve --sandbox docker"}
	}
	return s.o.Sandboxes, nil
}

// knownEnvironment returns an Invalid error about an environment that no provider of this server could ever have.
func (s *Server) knownEnvironment(ctx context.Context, env agent.Environment) error {
	if s.o.Sandboxes == nil {
		return nil // it is for when there is one
	}
	return s.o.Sandboxes.Check(ctx, env)
}

func (s *Server) listSandboxProviders(ctx context.Context, _ empty) (list[agent.SandboxProvider], error) {
	if s.o.Sandboxes == nil {
		return listOf([]agent.SandboxProvider{}, "", nil)
	}
	return listOf(s.o.Sandboxes.Providers(ctx), "", nil)
}

type openSandbox struct {
	Agent   string          `json:"agent" doc:"whose record says what the sandbox is"`
	Session agent.SessionID `json:"session,omitempty" doc:"whose environment it is to have; the newest one unless given"`
}

type openSandboxRequest struct {
	Body openSandbox `body:"json"`
}

// openSandbox waits until the sandbox can be used.
func (s *Server) openSandbox(ctx context.Context, q openSandboxRequest) (agent.Sandbox, error) {
	app := appOf(ctx)
	a, err := s.st.Agent(ctx, app, q.Body.Agent)
	if err != nil {
		return agent.Sandbox{}, err
	}
	if a.Sandbox == nil {
		return agent.Sandbox{}, &agent.Error{
			Kind: agent.Invalid, Msg: "agent " + a.Name + " has no sandbox", Hint: "skep agent update " + a.Name + " --environment NAME gives it one",
		}
	}
	var env agent.Environment
	if q.Body.Session == "" {
		env, err = s.st.Environment(ctx, app, a.Sandbox.Environment)
	} else {
		env, err = s.st.FreezeEnvironment(ctx, app, q.Body.Session, a.Sandbox.Environment)
	}
	if err != nil {
		return agent.Sandbox{}, err
	}
	k, err := s.keeper()
	if err != nil {
		return agent.Sandbox{}, err
	}
	w := keeper.Want{App: app, Agent: a.Name, Session: q.Body.Session, Keep: a.Sandbox.Keep, Environment: env, For: "agent/" + string(a.ID)}
	if w.Keep == agent.Cattle {
		w.For = "caller/" + string(agent.NewSandboxID(s.o.Now()))
	}
	b, err := k.Open(ctx, w)
	if err != nil {
		return agent.Sandbox{}, err
	}
	sb := b.Record()
	return sb, s.audit(ctx, "sandbox.open", string(sb.ID), a.Name)
}

type listSandboxesRequest struct {
	pageQuery
	Agent string `query:"agent" doc:"only its sandboxes"`
}

func (s *Server) listSandboxes(ctx context.Context, q listSandboxesRequest) (list[agent.Sandbox], error) {
	return listOf(s.st.Sandboxes(ctx, appOf(ctx), q.Agent, q.page()))
}

type sandboxRequest struct {
	ID agent.SandboxID `path:"id"`
}

// sandbox returns the record of a sandbox of the caller's app.
func (s *Server) sandbox(ctx context.Context, id agent.SandboxID) (agent.Sandbox, error) {
	rec, err := s.st.Sandbox(ctx, id)
	if err == nil && rec.App != appOf(ctx) {
		err = agent.Errorf(agent.NotFound, "there is no sandbox %.80q", string(id))
	}
	return rec.Sandbox, err
}

func (s *Server) getSandbox(ctx context.Context, q sandboxRequest) (agent.Sandbox, error) {
	return s.sandbox(ctx, q.ID)
}

func (s *Server) deleteSandbox(ctx context.Context, q sandboxRequest) (nothing, error) {
	if _, err := s.sandbox(ctx, q.ID); err != nil {
		return nothing{}, err
	}
	k, err := s.keeper()
	if err != nil {
		return nothing{}, err
	}
	if err := k.Delete(ctx, appOf(ctx), q.ID); err != nil {
		return nothing{}, err
	}
	return nothing{}, s.audit(ctx, "sandbox.delete", string(q.ID), "")
}

// box returns a sandbox that can be used; a pet that sleeps is woken.
func (s *Server) box(ctx context.Context, id agent.SandboxID) (*keeper.Box, error) {
	if _, err := s.sandbox(ctx, id); err != nil {
		return nil, err
	}
	k, err := s.keeper()
	if err != nil {
		return nil, err
	}
	return k.Get(ctx, appOf(ctx), id)
}

type execInput struct {
	Command    []string          `json:"command" doc:"program and arguments; one entry is a line for sh"`
	Dir        string            `json:"dir,omitempty" doc:"the workspace unless given"`
	Env        map[string]string `json:"env,omitempty"`
	Stdin      string            `json:"stdin,omitempty"`
	Timeout    time.Duration     `json:"timeout,omitempty" doc:"10 minutes unless given; none in the background"`
	Background bool              `json:"background,omitempty" doc:"answer once it has begun; it can be listed and sent signals"`
	Output     int64             `json:"output,omitempty" doc:"most bytes of each output in the answer, of its end; 64 KiB unless given"`
}

type execSandboxRequest struct {
	ID     agent.SandboxID `path:"id"`
	Accept string          `header:"Accept" doc:"application/x-ndjson for its output as it comes"`
	Body   execInput       `body:"json"`
}

// maxExecOutput bounds what an answer holds of an output.
const maxExecOutput = 256 << 10

func (s *Server) execSandbox(ctx context.Context, q execSandboxRequest) (any, error) {
	if len(q.Body.Command) == 0 {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: `field "command" is missing`, Hint: `such as ["ls", "-l"], or ["make && make test"] for a line of sh`}
	}
	if q.Body.Output < 0 || q.Body.Output > maxExecOutput {
		return nil, agent.Errorf(agent.Invalid, `field "output" must be from 0 to %d`, maxExecOutput)
	}
	form, err := negotiate(q.Accept, typeJSON, typeNDJSON)
	if err != nil {
		return nil, err
	}
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	in := q.Body
	x := driver.Exec{
		ID: string(agent.NewSandboxID(s.o.Now())), Command: in.Command, Dir: in.Dir, Env: in.Env, Stdin: []byte(in.Stdin), Timeout: in.Timeout,
		Background: in.Background, Most: in.Output,
	}
	if err := s.audit(ctx, "sandbox.exec", string(q.ID), in.Command[0]); err != nil {
		return nil, err
	}
	if form == typeNDJSON && !in.Background {
		return s.streamedExec(ctx, b, x)
	}
	return awaitedExec(ctx, b, x)
}

// awaitedExec is how a program ended, or that it has begun in the background. A client that is gone does not wait for it, and it is ended.
func awaitedExec(ctx context.Context, b link.Driver, x driver.Exec) (driver.ExecResult, error) {
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := watchGone(requestOf(ctx).conn, cancel)
	out := driver.ExecResult{}
	err := b.Do(waits, driver.DoExec, x, &out)
	stop()
	if err != nil && waits.Err() != nil && !x.Background {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalWait)
		defer cancel()
		err = errors.Join(err, b.Do(ctx, driver.DoSignal, driver.SignalArgs{ID: x.ID}, nil))
	}
	out.ID = x.ID
	return out, err
}

// signalWait is how long a program may take to be told that nobody waits for it.
const signalWait = 10 * time.Second

// streamedExec is a program's output as it comes. A client that is gone is noticed by a heartbeat, and ends the program.
func (s *Server) streamedExec(ctx context.Context, b link.Driver, x driver.Exec) (*stream, error) {
	broke := func(err error) problem {
		if agent.KindOf(err) == agent.Internal {
			s.o.Log.ErrorContext(ctx, "api: a program in a sandbox failed", "err", err)
		}
		return problemOf(err, requestOf(ctx).id)
	}
	out, err := s.export(ctx, func(ctx context.Context, w io.Writer) error { return streamExec(ctx, b, x, w, broke) })
	if err == nil {
		out.beat = []byte("\n")
	}
	return out, err
}

// execLine is a line of a program's output as it comes. The last one has how it ended, or why it did not begin or is not known to have ended.
type execLine struct {
	Stdout string             `json:"stdout,omitempty"`
	Stderr string             `json:"stderr,omitempty"`
	Exit   *driver.ExecResult `json:"exit,omitempty"`
	Error  *problem           `json:"error,omitempty"`
	ID     string             `json:"id,omitempty"` // of the first: for signals
}

// streamExec writes a program's output as lines of JSON. Text that is no UTF-8 is not kept byte for byte, but no line ends within a character. An error
// before the first line is returned, a later one is a line, as broke has it.
func streamExec(ctx context.Context, b link.Driver, x driver.Exec, w io.Writer, broke func(error) problem) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	args := func(st *driver.Stream) any { x.Stream = st; return x }
	told := false
	err := link.Carry(ctx, b, driver.DoExec, args, nil, func(conn link.Conn) error {
		_ = conn.CloseWrite()
		if err := enc.Encode(execLine{ID: x.ID}); err != nil {
			return err
		}
		told = true
		var stdout, stderr uncut
		for {
			kind, data, err := driver.ReadExecFrame(conn)
			if err != nil {
				return err
			}
			var line execLine
			switch kind {
			case driver.FrameOut:
				line.Stdout = stdout.take(data)
			case driver.FrameErr:
				line.Stderr = stderr.take(data)
			case driver.FrameExit:
				line = execLine{Stdout: string(stdout.rest), Stderr: string(stderr.rest), Exit: &driver.ExecResult{}}
				if err := json.Unmarshal(data, line.Exit); err != nil {
					return err
				}
			}
			if line == (execLine{}) {
				continue
			}
			if err := enc.Encode(line); err != nil || line.Exit != nil {
				return err
			}
		}
	})
	if err == nil || !told || ctx.Err() != nil { // nobody reads on
		return err
	}
	p := broke(err)
	return enc.Encode(execLine{Error: &p})
}

func (s *Server) listProcesses(ctx context.Context, q sandboxRequest) (list[driver.Process], error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return list[driver.Process]{}, err
	}
	var out driver.Processes
	err = b.Do(ctx, driver.DoProcesses, nil, &out)
	return listOf(out.List, "", err)
}

type signalInput struct {
	Signal string `json:"signal,omitempty" doc:"INT, TERM, KILL, ...; TERM, followed by KILL, unless given"`
}

type signalProcessRequest struct {
	ID      agent.SandboxID `path:"id"`
	Process string          `path:"process" doc:"as the list of processes has it"`
	Body    signalInput     `body:"json" default:"{}"`
}

func (s *Server) signalProcess(ctx context.Context, q signalProcessRequest) (nothing, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, b.Do(ctx, driver.DoSignal, driver.SignalArgs{ID: q.Process, Signal: q.Body.Signal}, nil)
}
