package keeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Want says what a sandbox is wanted for.
type Want struct {
	App         agent.App
	Agent       string
	For         string // whose it is: the same For has the same sandbox
	Session     agent.SessionID
	Run         agent.RunID // that uses it
	Keep        agent.SandboxKeep
	Environment agent.Environment // a revision that is stored
	Trace       string            // traceparent of what asks
}

// maxAgain is how often one Open makes a new generation.
const maxAgain = 2

// Open returns the sandbox of w.For, ready: made, started, its driver connected, its setup script done. There is one at a time, and who asks for one that is
// being made waits for it, as long as ctx lives. What was begun for an Open that was given up, or by a server that died, is gone on with. One that was lost
// or stopped is made anew, with what is kept of a pet and nothing of cattle: Box.Record().Generation tells.
//
// Errors are Invalid with sandbox.ErrUnavailable when the provider lacks what is required, Exhausted when the app has too many, Failed when the setup script
// failed, Unavailable when it may work another time. What is wrong with a sandbox for good is kept, and is the error of each Open by the same run.
func (k *Keeper) Open(ctx context.Context, w Want) (*Box, error) {
	b, err := k.open(ctx, w)
	return b, typed(ctx, err, openName(w.App, w.For))
}

func (k *Keeper) open(ctx context.Context, w Want) (*Box, error) {
	if w.App == "" || w.For == "" || w.Environment.Revision < 1 || w.Environment.App != w.App {
		return nil, agent.Errorf(agent.Internal, "a sandbox is opened for nobody, or of no environment of its app that is stored")
	}
	done, err := k.opens.wait(ctx, openName(w.App, w.For))
	if err != nil {
		return nil, err
	}
	defer done()
	rec, err := k.found(ctx, &w)
	if err != nil {
		return nil, err
	}
	return k.bring(ctx, rec, &w.Environment)
}

// openName is what one waits for in k.opens.
func openName(app agent.App, whose string) string {
	return fmt.Sprintf("the sandbox of %s in app %s", whose, app)
}

// found returns the sandbox of w, which is used by w's run from now on, or a new one.
func (k *Keeper) found(ctx context.Context, w *Want) (agent.SandboxRecord, error) {
	rec, err := k.o.Records.SandboxFor(ctx, w.App, w.For)
	if agent.KindOf(err) == agent.NotFound {
		return k.want(ctx, w)
	}
	if err != nil {
		return rec, err
	}
	if rec.State == agent.SandboxFailed && w.Run != "" && rec.Run == w.Run {
		return rec, stored(&rec)
	}
	return k.use(ctx, &rec, w)
}

// use says that a sandbox is used now: by the run of w, unless that is nil.
func (k *Keeper) use(ctx context.Context, rec *agent.SandboxRecord, w *Want) (agent.SandboxRecord, error) {
	lv := k.live(rec.ID)
	if lv != nil {
		lv.touch()
	}
	moved := w != nil && (rec.Run != w.Run || rec.Session != w.Session)
	if !moved && k.now().Sub(rec.Used) < min(30*time.Second, rec.Idle/2) {
		return *rec, nil
	}
	now, err := k.change(ctx, rec.ID, 0, func(rec *agent.SandboxRecord) error {
		if rec.State == agent.SandboxDeleting {
			return fenced(&rec.Sandbox)
		}
		rec.Used = k.now().UTC()
		if w != nil {
			rec.Run, rec.Session, rec.Trace = w.Run, w.Session, w.Trace
		}
		return nil
	})
	if err == nil && moved && lv != nil && lv.generation == now.Generation {
		err = k.handOver(ctx, lv, &now)
	}
	return now, err
}

// handOver gives a box that runs to another run: what its driver and its door know of the one before is replaced.
func (k *Keeper) handOver(ctx context.Context, lv *live, rec *agent.SandboxRecord) error {
	if err := lv.openDoor(&rec.Sandbox); err != nil {
		return err
	}
	if rec.State != agent.SandboxReady || lv.link.Err() != nil {
		return nil
	}
	return lv.renew(ctx)
}

// want stores that a sandbox is wanted, before anything of it is made. One of the pool is taken where there is one.
func (k *Keeper) want(ctx context.Context, w *Want) (agent.SandboxRecord, error) {
	p, err := k.admit(ctx, &w.Environment, w.Keep, w.Environment.Provider)
	if err != nil {
		return agent.SandboxRecord{}, err
	}
	if w.Keep == agent.Cattle {
		if rec, ok, err := k.take(ctx, w); ok || err != nil {
			return rec, err
		}
	}
	rec := k.newRecord(&w.Environment, p.Name())
	k.give(&rec, w)
	if w.Keep == agent.Pet {
		fresh(&rec)
	}
	if err := k.put(ctx, rec, k.o.Most); err != nil {
		return agent.SandboxRecord{}, err
	}
	return rec, nil
}

// newRecord returns a sandbox of nobody.
func (k *Keeper) newRecord(env *agent.Environment, provider string) agent.SandboxRecord {
	now := k.now().UTC()
	rec := agent.SandboxRecord{Sandbox: agent.Sandbox{
		ID: agent.NewSandboxID(now), App: env.App, Environment: env.Ref(), Provider: provider, Generation: 1, State: agent.SandboxWanted, Created: now, Used: now,
	}}
	rec.Idle = env.Idle
	def(&rec.Idle, agent.DefaultSandboxIdle)
	return rec
}

// give says whose a sandbox is.
func (k *Keeper) give(rec *agent.SandboxRecord, w *Want) {
	now := k.now().UTC()
	rec.Agent, rec.For, rec.Session, rec.Run, rec.Keep, rec.Trace, rec.Pool = w.Agent, w.For, w.Session, w.Run, w.Keep, w.Trace, false
	rec.Used = now
	life := w.Environment.Life
	if w.Keep == agent.Cattle {
		def(&life, agent.DefaultSandboxLife)
	}
	if life > 0 {
		rec.Expires = now.Add(life)
	}
}

// bring makes a sandbox ready from wherever it stands. Each step is stored, so that this goes on where something else was cut short. The caller has its
// place in k.opens. env is what a new generation is made of; nil means that one which was ready, and has gone, is not to be made anew: whoever has it
// open would find nothing of what was in it.
func (k *Keeper) bring(ctx context.Context, rec agent.SandboxRecord, env *agent.Environment) (*Box, error) {
	made := false // by this call
	for again := 0; ; {
		var err error
		switch rec.State {
		case agent.SandboxReady:
			lv, err := k.alive(ctx, &rec)
			if err == nil {
				return &Box{k, lv}, nil
			}
			if !errors.Is(err, ErrLost) || again == maxAgain || env == nil {
				return nil, err
			}
		case agent.SandboxWanted:
			rec, err = k.make(ctx, &rec)
			made = err == nil
		case agent.SandboxStarting:
			rec, err = k.start(ctx, &rec, made)
			made = false
		case agent.SandboxStopped, agent.SandboxLost, agent.SandboxFailed:
			again++
			rec, err = k.again(ctx, &rec, env)
		default:
			return nil, fenced(&rec.Sandbox)
		}
		if err != nil && (!errors.Is(err, errResumed) || again == maxAgain) {
			return nil, err
		}
		if rec, err = k.o.Records.Sandbox(ctx, rec.ID); err != nil {
			return nil, err
		}
	}
}

// again wants the next generation of a sandbox whose box has gone.
func (k *Keeper) again(ctx context.Context, rec *agent.SandboxRecord, env *agent.Environment) (agent.SandboxRecord, error) {
	if env == nil {
		had, err := k.o.Records.Environment(ctx, rec.App, rec.Environment)
		if err != nil {
			return *rec, err
		}
		env = &had
	}
	if _, err := k.admit(ctx, env, rec.Keep, rec.Provider); err != nil { // what is kept of it is there, and nowhere else
		return *rec, err
	}
	k.detach(rec.ID, lostError(&rec.Sandbox, "another generation of it is made"))
	now, err := k.step(ctx, rec, rec.State, func(rec *agent.SandboxRecord) { anew(rec, env) })
	if err != nil {
		return *rec, err
	}
	return now, nil
}

// anew wants the next generation of a sandbox. A pet that has nothing kept begins with nothing.
func anew(rec *agent.SandboxRecord, env *agent.Environment) {
	rec.Generation++
	rec.State, rec.Handle, rec.Error, rec.Started = agent.SandboxWanted, "", nil, time.Time{}
	rec.Environment, rec.Idle = env.Ref(), env.Idle
	def(&rec.Idle, agent.DefaultSandboxIdle)
	if rec.Keep == agent.Pet && rec.Volume == "" {
		fresh(rec)
	}
}

// fresh has a pet begin with nothing kept: what was kept under another name is of nobody from then on.
func fresh(rec *agent.SandboxRecord) {
	rec.Kept = rec.Generation
	rec.Volume = "skep-" + strings.ToLower(string(rec.ID)) // as names are at some providers
	if rec.Kept > 1 {
		rec.Volume += "-" + strconv.FormatInt(rec.Kept, 10)
	}
}

// Get returns a sandbox that is there, ready: a pet that was stopped is started. One that was lost, or failed, is the error of that, and one that is being
// deleted, or waits for who will have it, is NotFound.
func (k *Keeper) Get(ctx context.Context, app agent.App, id agent.SandboxID) (*Box, error) {
	b, err := k.get(ctx, app, id)
	return b, typed(ctx, err, "sandbox "+string(id))
}

func (k *Keeper) get(ctx context.Context, app agent.App, id agent.SandboxID) (*Box, error) {
	rec, done, err := k.held(ctx, app, id)
	if err != nil {
		return nil, err
	}
	defer done()
	switch rec.State {
	case agent.SandboxFailed, agent.SandboxLost:
		return nil, stored(&rec)
	}
	if rec, err = k.use(ctx, &rec, nil); err != nil {
		return nil, err
	}
	return k.bring(ctx, rec, nil)
}

// held is record, and keeps others from opening the sandbox until done.
func (k *Keeper) held(ctx context.Context, app agent.App, id agent.SandboxID) (rec agent.SandboxRecord, done func(), err error) {
	if rec, err = k.record(ctx, app, id); err != nil { // which says whose it is
		return rec, nil, err
	}
	if done, err = k.opens.wait(ctx, openName(app, rec.For)); err != nil {
		return rec, nil, err
	}
	if rec, err = k.record(ctx, app, id); err != nil {
		done()
	}
	return rec, done, err
}

// record returns a sandbox of an app that is somebody's.
func (k *Keeper) record(ctx context.Context, app agent.App, id agent.SandboxID) (agent.SandboxRecord, error) {
	rec, err := k.o.Records.Sandbox(ctx, id)
	if err == nil && (rec.App != app || rec.For == "" || rec.State == agent.SandboxDeleting) {
		err = agent.Errorf(agent.NotFound, "there is no sandbox %.80q", string(id))
	}
	return rec, err
}
