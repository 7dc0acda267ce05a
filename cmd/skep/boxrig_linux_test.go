package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	engine "github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/dockertest"
)

// boxServer is a server whose sandboxes are containers of Docker's, as one that is asked by its API sees it.
type boxServer struct {
	*liveServer
	t       *testing.T
	engine  *engine.Client
	sockets string // folder
	log     *safeBuffer
}

// serveBoxes starts a server with sandboxes whose driver is that file; change is of its flags, and may be nil. When the test ends, nothing of them may be left.
func serveBoxes(t *testing.T, driver string, change func(*sandboxOptions)) *boxServer {
	t.Helper()
	host := dockertest.Host(t)
	dir, err := os.MkdirTemp("", "skep") // a short path, for the sake of the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &boxServer{t: t, engine: dockertest.Client(t, host), sockets: dir, log: &safeBuffer{}}
	s.liveServer = startServer(t, s.log, func(o *serveOptions) {
		o.sandbox = sandboxOptions{kind: "docker", host: host, driver: driver, dir: dir}
		if change != nil {
			change(&o.sandbox)
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			for line := range bytes.Lines(s.log.Bytes()) {
				if !bytes.Contains(line, []byte("level=DEBUG")) {
					t.Logf("the server: %s", line)
				}
			}
		}
	})
	t.Cleanup(s.stop)
	return s
}

// agent makes an agent whose work a CLI does, in an environment of its own, and the provider and route of the model that it asks, all by one name.
func (s *boxServer) agent(t *testing.T, name, cli string, keep agent.SandboxKeep, env agent.Environment, turns ...script.Turn) {
	t.Helper()
	ctx := t.Context()
	env.Name = name
	s.provide(t, name, turns)
	_, err1 := s.PutEnvironment(ctx, env)
	_, err2 := s.PutModelRoute(ctx, agent.ModelRoute{Name: name, Attempts: 1, Candidates: []agent.Candidate{{Provider: name, Model: "m"}}})
	_, err3 := s.CreateAgent(ctx, client.NewAgent{
		Name: name, Grants: agent.Grants{Models: []agent.NamedGrant{{Name: "@" + name}}},
		Sandbox: &agent.SandboxUse{Environment: name, CLI: cli, Model: "@" + name, Keep: keep},
	})
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// provide sets a provider that says the turns.
func (s *boxServer) provide(t *testing.T, name string, turns []script.Turn) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"turns": turns})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutProvider(t.Context(), client.NewProvider{Provider: agent.Provider{Name: name}, Turns: string(text)}); err != nil {
		t.Fatal(err)
	}
}

// task begins a run; in a session of the agent's unless it is "".
func (s *boxServer) task(t *testing.T, name string, session agent.SessionID, text string, attached ...string) agent.Run {
	t.Helper()
	input, err := json.Marshal(map[string]any{"task": text, "attachments": append([]string{}, attached...)})
	if err != nil {
		t.Fatal(err)
	}
	run, err := s.StartRun(t.Context(), client.NewRun{Agent: name, Session: session, Input: input})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

const boxPatience = 3 * time.Minute

// until looks until it is so.
func (s *boxServer) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(boxPatience); !so(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not so within %s: %s; left are %q", boxPatience, what, s.left(t))
		}
	}
}

// ended waits for the end of a run, which has to be of that status.
func (s *boxServer) ended(t *testing.T, run agent.Run, want agent.RunStatus) agent.Run {
	t.Helper()
	id := run.ID
	s.until(t, "the run has ended", func() bool {
		var err error
		if run, err = s.Run(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return run.Status.Terminal()
	})
	if run.Status != want {
		t.Errorf("the run is %s, want %s: %+v\n%s", run.Status, want, run.Error, s.tale(t, run))
	}
	return run
}

// failed waits until a run has failed with an error of that kind whose message has a text.
func (s *boxServer) failed(t *testing.T, run agent.Run, kind agent.Kind, text string) agent.Run {
	t.Helper()
	run = s.ended(t, run, agent.RunFailed)
	if e := run.Error; e == nil || e.Kind != kind || !strings.Contains(e.Msg, text) {
		t.Errorf("the run has failed with %+v, want %s: ...%s...\n%s", e, kind, text, s.tale(t, run))
	}
	return run
}

// events are those of a run, so far.
func (s *boxServer) events(t *testing.T, run agent.Run) (list []agent.Event) {
	t.Helper()
	for ev, err := range s.Events(t.Context(), client.SessionLog(run.Session), run.FirstSeq-1, false) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Run == run.ID {
			list = append(list, ev)
		}
	}
	return list
}

// tale is what a run's log tells, for a person.
func (s *boxServer) tale(t *testing.T, run agent.Run) string {
	var b bytes.Buffer
	for _, ev := range s.events(t, run) {
		b.WriteString(ev.Kind.String() + " " + ev.Name + " " + string(ev.Data) + "\n")
	}
	return b.String()
}

// toldOf are the data of the events of a type that a run's CLI and driver have told.
func toldOf[T any](t *testing.T, list []agent.Event, kind string) (out []T) {
	t.Helper()
	for _, ev := range list {
		if ev.Kind != agent.EventCLI || ev.Name != kind {
			continue
		}
		var v T
		if err := json.Unmarshal(ev.Data, &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// asked waits until a run asks a person, and returns what.
func (s *boxServer) asked(t *testing.T, run agent.Run) (a agent.Approval) {
	t.Helper()
	s.until(t, "the run asks", func() bool {
		r, err := s.Run(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status.Terminal() {
			t.Fatalf("the run has ended and asked nothing: %+v\n%s", r.Error, s.tale(t, run))
		}
		if len(r.Asks) > 0 {
			a = r.Asks[0]
		}
		return len(r.Asks) > 0
	})
	return a
}

func (s *boxServer) answer(t *testing.T, a agent.Approval, by agent.ApprovalAnswer) {
	t.Helper()
	if _, err := s.AnswerApprovals(t.Context(), []agent.ApprovalID{a.ID}, by); err != nil {
		t.Fatal(err)
	}
}

// box returns the sandbox of an agent that keeps one.
func (s *boxServer) box(t *testing.T, name string) agent.Sandbox {
	t.Helper()
	l, err := s.Sandboxes(t.Context(), name, agent.Page{})
	if err != nil || len(l.Items) != 1 {
		t.Fatalf("%s has %d sandboxes (%v)", name, len(l.Items), err)
	}
	return l.Items[0]
}

// file is what a file of the workspace has; ok is false when there is none.
func (s *boxServer) file(t *testing.T, id agent.SandboxID, name string) (text string, ok bool) {
	t.Helper()
	r, err := s.ReadSandbox(t.Context(), id, name)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), true
}

// requests are what a run has sent to models, the oldest first.
func (s *boxServer) requests(t *testing.T, run agent.Run) (list []string) {
	t.Helper()
	l, err := s.ModelLogs(t.Context(), agent.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Backward(l.Items) {
		if m.Run != run.ID {
			continue
		}
		whole, err := s.ModelLog(t.Context(), m.Call)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, whole.Request)
	}
	return list
}

// nothing waits until nothing is left of sandboxes: no record, no container, no volume and no folder of a socket.
func (s *boxServer) nothing(t *testing.T) {
	t.Helper()
	var left []string
	s.until(t, "nothing is left of sandboxes", func() bool {
		left = s.left(t)
		return len(left) == 0
	})
}

// left lists what there is of this server's sandboxes.
func (s *boxServer) left(t *testing.T) (left []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	records, err := s.Sandboxes(ctx, "", agent.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range records.Items {
		left = append(left, "sandbox "+string(sb.ID))
	}
	ours, err := boxesLeft(ctx, s.engine, s.dir)
	if err != nil {
		t.Fatal(err)
	}
	left = append(left, ours...)
	folders, err := os.ReadDir(s.sockets)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if strings.Contains(f.Name(), ".") && f.IsDir() {
			left = append(left, "folder "+f.Name())
		}
	}
	return left
}

// boxesLeft lists the containers and volumes of the server with that data directory.
func boxesLeft(ctx context.Context, c *engine.Client, data string) (left []string, err error) {
	secret, err := os.ReadFile(filepath.Join(data, "sandbox.key"))
	if err != nil {
		return nil, err
	}
	of := engine.Filters{}.Add("label", sandbox.OwnerLabel+"="+sandboxOwner(secret))
	boxes, err := c.ContainerList(ctx, engine.ContainerListOptions{All: true, Filters: of})
	if err != nil {
		return nil, err
	}
	for _, b := range boxes.Items {
		left = append(left, "container "+b.ID)
	}
	volumes, err := c.VolumeList(ctx, engine.VolumeListOptions{Filters: of})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		left = append(left, "volume "+v.Name)
	}
	return left, nil
}

// turnEnd waits for the end of a run's turn, as the log has it.
func (s *boxServer) turnEnd(t *testing.T, run agent.Run) (end driver.TurnEnd) {
	t.Helper()
	s.until(t, "the turn has ended", func() bool {
		list := toldOf[driver.TurnEnd](t, s.events(t, run), driver.TurnEnded)
		if len(list) > 0 {
			end = list[0]
		}
		return len(list) > 0
	})
	return end
}
