package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// boxRound is a round in which clients start runs of a command-line agent in boxes. Servers, containers and drivers are killed.
type boxRound struct {
	*round
	sockets string // folder
	cl      *client.Client
	owner   string // label of the server's containers and volumes

	jobs   []*job                          // under mu, as is struck
	struck map[agent.SandboxID][]time.Time // when a container of it was killed
}

// job is a run, and what it is to do. The names of its steps are those of boxagent.
type job struct {
	plan
	pet     bool
	session agent.SessionID // of a pet's
	run     agent.Run       // as it was when it had ended
}

type plan struct {
	Name  string `json:"name"`
	Steps []step `json:"steps"`
}

type step struct {
	Say   int    `json:"say,omitempty"`
	Edit  string `json:"edit,omitempty"`
	Look  bool   `json:"look,omitempty"`
	Pause int    `json:"pause,omitempty"` // milliseconds
}

const (
	cattleName  = "cattle"
	petName     = "pet"
	environment = "box"
	fresh       = 3 // clients whose runs have a box of their own each
	sharing     = 2 // clients whose runs share the pet's
)

// boxPolicy decides by what files are called: those that begin with yes or no are asked about.
const boxPolicy = `modify: ask
rules:
  - allow cli.edit(path=free-*)
  - deny cli.edit(path=never-*) because nobody wants it
`

func newBoxRound(r *round) *boxRound {
	b := &boxRound{round: r, sockets: filepath.Join(r.settings.dir, fmt.Sprint("s", r.n)), struck: map[agent.SandboxID][]time.Time{}}
	r.server.flags = append(r.server.flags, "--sandbox", "docker", "--sandbox-driver", r.driver, "--sandbox-dir", b.sockets)
	return b
}

// newPlan draws what is to be done in a turn.
func newPlan(name string, rng *rand.Rand) plan {
	p := plan{Name: name}
	for i := range 3 + rng.IntN(6) {
		st := step{Pause: rng.IntN(40)}
		switch rng.IntN(3) {
		case 0:
			st.Edit = []string{"yes", "no", "free", "never"}[rng.IntN(4)] + fmt.Sprintf("-%s-%d", name, i)
		case 1:
			st.Look = true
		default:
			st.Say = 1 + rng.IntN(30)
		}
		p.Steps = append(p.Steps, st)
	}
	return p
}

// allowed tells whether a file is edited in the end.
func allowed(file string) bool {
	return strings.HasPrefix(file, "yes-") || strings.HasPrefix(file, "free-")
}

func (r *boxRound) run(ctx context.Context) (err error) {
	r.up = make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := os.Mkdir(r.sockets, 0o700); err != nil {
		return err
	}
	defer func() {
		r.server.kill()
		if r.owner != "" && len(r.wrong) == 0 { // else it is there to be looked at
			err = errors.Join(err, removeAll(context.WithoutCancel(ctx), r.owner))
		}
	}()
	if err := r.start(ctx); err != nil {
		return err
	}
	r.cl = r.server.client()
	sessions, err := r.prepareBoxes(ctx)
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	following, late := context.WithCancel(ctx)
	defer late()
	answering, leave := context.WithCancel(ctx)
	defer leave()
	var clients, answers sync.WaitGroup
	for i := range fresh + sharing {
		rng := rand.New(rand.NewPCG(r.seed, uint64(r.n*1000+i)))
		var session agent.SessionID
		if i >= fresh {
			session = sessions[i-fresh]
		}
		clients.Go(func() { r.workBoxes(working, following, i, session, rng) })
	}
	p := newPerson(r.round, r.cl, r.judge)
	p.late = true
	answers.Go(func() { p.answer(answering) })
	err = r.strikes(ctx)
	stop()
	if err != nil {
		cancel()
	}
	timer := time.AfterFunc(patience, late)
	defer timer.Stop()
	began := time.Now()
	clients.Wait()
	leave()
	answers.Wait()
	r.tally["slowest to settle, ms"] = int(time.Since(began).Milliseconds())
	if err == nil {
		checking, done := context.WithTimeout(ctx, 2*patience)
		defer done()
		err = r.checkBoxes(checking, p)
	}
	return errors.Join(err, r.server.stop())
}

// judge tells what a person knows of an edit. A pet's turn may be begun again, in another box.
func (r *boxRound) judge(a agent.Approval, c agent.ApprovalCall) verdict {
	var args struct {
		Path string `json:"path"`
	}
	v := verdict{wrong: json.Unmarshal(c.Args, &args) != nil || c.Tool != "cli.edit"}
	if v.name = args.Path; a.Agent == petName {
		v.name += " " + string(a.ID)
	}
	v.deny = strings.HasPrefix(args.Path, "no-")
	v.wrong = v.wrong || !v.deny && !strings.HasPrefix(args.Path, "yes-")
	return v
}

// prepareBoxes sets up what an earlier round has not, has the pet's box made, and learns by it which containers are the server's. It returns sessions of the pet.
func (r *boxRound) prepareBoxes(ctx context.Context) (sessions []agent.SessionID, err error) {
	if _, err := r.cl.PutEnvironment(ctx, agent.Environment{Name: environment, Image: boxImage, Size: agent.SandboxSize{Memory: 256 << 20}}); err != nil {
		return nil, err
	}
	if _, err := r.cl.SetPolicy(ctx, boxPolicy, nil); err != nil {
		return nil, err
	}
	for name, keep := range map[string]agent.SandboxKeep{cattleName: agent.Cattle, petName: agent.Pet} {
		_, err := r.cl.Agent(ctx, name)
		if agent.KindOf(err) == agent.NotFound && err != nil {
			_, err = r.cl.CreateAgent(ctx, client.NewAgent{Name: name, Sandbox: &agent.SandboxUse{
				Environment: environment, CLI: "acp", Command: []string{boxProgram}, Keep: keep,
			}})
		}
		if err != nil {
			return nil, err
		}
	}
	for range sharing {
		s, err := r.cl.CreateSession(ctx, client.NewSession{Agent: petName})
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, s.ID)
	}
	sb, err := r.cl.OpenSandbox(ctx, petName, "")
	if err != nil {
		return nil, err
	}
	r.owner, err = ownerOf(ctx, sb.ID)
	return sessions, err
}

// workBoxes starts one run after the other, and follows each to its end.
func (r *boxRound) workBoxes(working, ctx context.Context, i int, session agent.SessionID, rng *rand.Rand) {
	for n := 0; r.waitUp(working) == nil && working.Err() == nil; n++ {
		j := &job{plan: newPlan(fmt.Sprintf("%d-%d-%d", r.n, i, n), rng), pet: session != "", session: session}
		r.mu.Lock()
		r.jobs = append(r.jobs, j)
		r.mu.Unlock()
		err := r.startJob(ctx, j)
		if err == nil {
			err = r.followJob(ctx, j)
		}
		if err != nil {
			r.fail("job %s, run %s, which is %s and waits for %+v: %v", j.Name, j.run.ID, j.run.Status, j.run.Wait, err)
			return
		}
	}
}

// startJob starts a run.
func (r *boxRound) startJob(ctx context.Context, j *job) error {
	text, err := json.Marshal(j.plan)
	if err != nil {
		return err
	}
	input, err := json.Marshal(string(text))
	if err != nil {
		return err
	}
	start := client.NewRun{Agent: cattleName, Input: input}
	if j.pet {
		start.Agent, start.Session = petName, j.session
	}
	body, err := json.Marshal(start)
	if err != nil {
		return err
	}
	return r.insist(ctx, "/v1/runs", "job "+j.Name, body, &j.run)
}

func (r *boxRound) followJob(ctx context.Context, j *job) error {
	for {
		run, err := r.cl.Run(ctx, j.run.ID)
		if err == nil {
			r.mu.Lock()
			j.run = run
			r.mu.Unlock()
			if run.Status.Terminal() {
				return nil
			}
			if run.Status == agent.Uncertain {
				return errors.New("no call of a sandbox leaves a run uncertain")
			}
		} else if agent.KindOf(err) != agent.Unavailable {
			return err
		}
		if err := sleep(ctx, glance); err != nil {
			return fmt.Errorf("it does not end: %w", err)
		}
		if err := r.waitUp(ctx); err != nil {
			return err
		}
	}
}
