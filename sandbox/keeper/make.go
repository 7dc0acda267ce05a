package keeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/sandbox"
)

// errResumed is in the chain of an error about a box that was begun by who did not see it through, and that cannot be gone on with.
var errResumed = errors.New("it was begun before")

// lookEvery is how often it is looked whether a box that was started has ended.
const lookEvery = 500 * time.Millisecond

// slot waits for one of the places in which boxes are made and started.
func (k *Keeper) slot(ctx context.Context) (done func(), err error) {
	select {
	case k.slots <- struct{}{}:
		return func() { <-k.slots }, nil
	case <-ctx.Done():
		return nil, waited(ctx, "the sandboxes before it to start")
	}
}

// make makes the box of a sandbox that is wanted.
func (k *Keeper) make(ctx context.Context, rec *agent.SandboxRecord) (agent.SandboxRecord, error) {
	p, err := k.provider(rec.Provider)
	if err != nil {
		return *rec, err
	}
	free, err := k.slot(ctx)
	if err != nil {
		return *rec, err
	}
	defer free()
	done, err := k.boxes.wait(ctx, string(rec.ID))
	if err != nil {
		return *rec, err
	}
	defer done()
	if rec.Generation > 1 {
		if err := k.purge(ctx, p, rec.ID, rec.Generation); err != nil {
			return *rec, err
		}
	}
	h, err := k.create(ctx, p, rec)
	if err != nil {
		if passing(err) {
			return *rec, err
		}
		return *rec, k.fail(ctx, rec, err)
	}
	now, err := k.step(ctx, rec, agent.SandboxWanted, func(rec *agent.SandboxRecord) { rec.Handle, rec.State = string(h), agent.SandboxStarting })
	if err != nil {
		return *rec, err // one that was deleted meanwhile is at our place next, and the box with it
	}
	return now, nil
}

// create has a provider make the box of a sandbox, or find the one that it has made.
func (k *Keeper) create(ctx context.Context, p sandbox.Provider, rec *agent.SandboxRecord) (sandbox.Handle, error) {
	env, err := k.o.Records.Environment(ctx, rec.App, rec.Environment)
	if err != nil {
		return "", err
	}
	dir, err := k.makeFolder(rec.ID, rec.Generation)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, making)
	defer cancel()
	return p.Create(ctx, &sandbox.Request{
		Owner: k.o.Owner, ID: rec.ID, Generation: rec.Generation, Image: env.Image, Packages: env.Packages, Runtime: env.Runtime, Size: sizeOf(&env),
		Sockets: dir, Driver: k.o.Driver, Volume: rec.Volume,
	})
}

func sizeOf(env *agent.Environment) agent.SandboxSize {
	s := env.Size
	def(&s.Memory, agent.DefaultSandboxMemory)
	def(&s.CPUs, agent.DefaultSandboxCPUs)
	def(&s.Pids, agent.DefaultSandboxPids)
	def(&s.Disk, agent.DefaultSandboxDisk)
	return s
}

// purge deletes the boxes of a sandbox that are of another generation, so that no two have what is kept of a pet.
func (k *Keeper) purge(ctx context.Context, p sandbox.Provider, id agent.SandboxID, generation int64) error {
	ctx, cancel := context.WithTimeout(ctx, making)
	defer cancel()
	list, err := p.List(ctx, k.o.Owner)
	if err != nil {
		return err
	}
	for _, o := range list {
		if o.ID == id && o.Generation != generation {
			if err := p.Delete(ctx, o.Handle); err != nil {
				return err
			}
		}
	}
	return nil
}

// start starts the box of a sandbox, waits for its driver, and runs the setup script. It goes on with a start that was cut short, unless the setup script
// may have run. fresh says that the box was made just now.
func (k *Keeper) start(ctx context.Context, rec *agent.SandboxRecord, fresh bool) (agent.SandboxRecord, error) {
	p, err := k.provider(rec.Provider)
	if err != nil {
		return *rec, err
	}
	lv, now, err := k.boot(ctx, p, rec, fresh)
	if err != nil {
		return *rec, err
	}
	if now.Checkpoint.Pending {
		if now, err = k.putBack(ctx, lv, &now); err != nil {
			return now, err
		}
	}
	if lv.env.Setup != "" {
		if err := k.setup(ctx, lv, &now); err != nil {
			return now, err
		}
	}
	return k.step(ctx, &now, agent.SandboxStarting, func(rec *agent.SandboxRecord) { rec.State, rec.Used = agent.SandboxReady, k.now().UTC() })
}

// boot starts a box that was made and returns when its driver is ready.
func (k *Keeper) boot(ctx context.Context, p sandbox.Provider, rec *agent.SandboxRecord, fresh bool) (*live, agent.SandboxRecord, error) {
	free, err := k.slot(ctx)
	if err != nil {
		return nil, *rec, err
	}
	defer free()
	done, err := k.boxes.wait(ctx, string(rec.ID))
	if err != nil {
		return nil, *rec, err
	}
	defer done()
	st := sandbox.State{Phase: sandbox.Created}
	if !fresh {
		st, err = k.inspect(ctx, p, sandbox.Handle(rec.Handle))
	}
	switch {
	case err != nil:
		return nil, *rec, err
	case st.Phase == sandbox.Absent || st.Phase == sandbox.Exited:
		return nil, *rec, resumed(k.gone(ctx, p, rec, st))
	case st.Phase == sandbox.Created:
		k.detach(rec.ID, alreadyOver()) // of a start that failed, whose token may be too old by now
	}
	lv, err := k.attach(ctx, rec)
	if err != nil {
		return nil, *rec, err
	}
	if st.Phase != sandbox.Created && !rec.Started.IsZero() && lv.env.Setup != "" {
		return nil, *rec, resumed(k.lose(ctx, rec, "its setup script was cut short"))
	}
	if st.Phase == sandbox.Created {
		if err := k.startBox(ctx, p, lv, rec); err != nil {
			return nil, *rec, err
		}
	}
	if err := k.hello(ctx, p, lv, rec, st.Phase == sandbox.Created); err != nil {
		return nil, *rec, err
	}
	now, err := k.step(ctx, rec, agent.SandboxStarting, func(rec *agent.SandboxRecord) { rec.Started = k.now().UTC() })
	if err != nil {
		return nil, *rec, err
	}
	if hello := lv.link.Hello(); hello != nil {
		k.log.Info("a sandbox has started", "sandbox", rec.ID, "generation", rec.Generation, "driver", hello.Driver, "facts", hello.Facts, "clis", len(hello.CLIs))
	}
	return lv, now, nil
}

// resumed marks the error of a sandbox that was lost, so that its next generation is made.
func resumed(err error) error {
	if errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: %w", err, errResumed)
	}
	return err
}

// startBox starts a box. One that failed to start is inspected by the next Open, which goes on or makes another.
func (k *Keeper) startBox(ctx context.Context, p sandbox.Provider, lv *live, rec *agent.SandboxRecord) error {
	boot, err := lv.boot(rec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, making)
	defer cancel()
	err = p.Start(ctx, sandbox.Handle(rec.Handle), boot)
	switch {
	case agent.KindOf(err) == agent.Conflict: // it was in a pool, and has ended there
		return resumed(k.lose(ctx, rec, err.Error()))
	case err == nil || passing(err):
		return err
	}
	return k.fail(ctx, rec, err)
}

// hello waits until the driver is ready, and no longer than it may take or its box runs. ours says that this call of boot has started the box: one that a
// server has started which died in the middle may have got no boot payload, and ends for that.
func (k *Keeper) hello(ctx context.Context, p sandbox.Provider, lv *live, rec *agent.SandboxRecord, ours bool) error {
	hctx, cancel := context.WithTimeout(ctx, k.o.Hello)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- lv.link.Ready(hctx) }()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case err := <-ready:
			switch {
			case err == nil || ctx.Err() != nil:
				return err
			case hctx.Err() != nil:
				what := "did not say hello"
				if lv.link.Hello() != nil {
					what = "said hello, and was not ready"
				}
				return k.fail(ctx, rec, &agent.Error{
					Kind: agent.Unavailable, Msg: fmt.Sprintf("the driver of sandbox %s %s within %s%s", rec.ID, what, k.o.Hello, k.tail(ctx, p, rec)),
					Hint: "the image may be of another architecture, or the machine may be overloaded",
				})
			case errors.Is(err, link.ErrLost):
				return k.lose(ctx, rec, err.Error()+k.tail(ctx, p, rec))
			}
			return err // it was closed, by who says why
		case <-look.C:
			st, err := k.inspect(hctx, p, sandbox.Handle(rec.Handle))
			if err != nil || st.Phase != sandbox.Exited && st.Phase != sandbox.Absent {
				continue
			}
			cancel()
			if err := <-ready; err == nil {
				return nil // and has ended since, which who uses it finds out
			}
			if !ours {
				return resumed(k.gone(ctx, p, rec, st))
			}
			return k.fail(ctx, rec, &agent.Error{
				Kind: agent.Failed, Msg: fmt.Sprintf("the driver of sandbox %s did not say hello: %s%s", rec.ID, ended(p, st), k.tail(ctx, p, rec)),
				Hint: "the image may be of another architecture, or lack what the driver needs",
			})
		}
	}
}

// setup runs the setup script of a fresh box.
func (k *Keeper) setup(ctx context.Context, lv *live, rec *agent.SandboxRecord) error {
	lv.busy.Add(1)
	defer lv.busy.Add(-1)
	sctx, cancel := context.WithTimeout(ctx, k.o.Setup+quick)
	defer cancel()
	var res driver.SetupResult
	err := lv.link.Do(sctx, driver.DoSetup, &driver.SetupArgs{Script: lv.env.Setup, Timeout: k.o.Setup}, &res)
	bad := func(format string, args ...any) error {
		return k.fail(ctx, rec, &agent.Error{
			Kind: agent.Failed, Msg: fmt.Sprintf("the setup script of environment %s ", rec.Environment) + fmt.Sprintf(format, args...), Hint: "change the script: skep environment set",
		})
	}
	switch {
	case ctx.Err() != nil:
		return waited(ctx, "the setup script of environment "+rec.Environment)
	case errors.Is(err, link.ErrLost):
		return k.lose(ctx, rec, err.Error())
	case errors.Is(err, ErrLost): // it was deleted meanwhile
		return err
	case err != nil && sctx.Err() != nil, err == nil && res.TimedOut:
		return bad("had not ended after %s%s", k.o.Setup, outputEnd(&res))
	case err != nil:
		return bad("could not be run: %s", err)
	case res.Signal != "":
		return bad("was ended by the signal %s%s", res.Signal, outputEnd(&res))
	case res.Code != 0:
		return bad("failed with exit status %d%s", res.Code, outputEnd(&res))
	}
	return nil
}

func outputEnd(res *driver.SetupResult) string {
	return textEnd(strings.TrimRight(res.Stdout, "\n") + "\n" + res.Stderr)
}

// maxEnd is how many bytes of an output an error shows.
const maxEnd = 2000

// textEnd returns the end of an output as it follows a message.
func textEnd(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD"))
	if len(s) > maxEnd {
		s = s[len(s)-maxEnd:]
		for !utf8.RuneStart(s[0]) {
			s = s[1:]
		}
		s = "..." + s
	}
	if s == "" {
		return ""
	}
	return ": " + s
}

// tail returns the end of what a driver has written to its standard error, as far as the provider has it.
func (k *Keeper) tail(ctx context.Context, p sandbox.Provider, rec *agent.SandboxRecord) string {
	l, ok := p.(sandbox.Logger)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quick)
	defer cancel()
	b, err := l.Log(ctx, sandbox.Handle(rec.Handle), maxEnd)
	if err != nil {
		return ""
	}
	return textEnd(string(b))
}

// ended says how a box has ended.
func ended(p sandbox.Provider, st sandbox.State) string {
	if st.Phase == sandbox.Absent {
		return "its box was deleted from outside, at " + p.Name()
	}
	s := fmt.Sprintf("its box ended with exit status %d", st.Code)
	if st.OOM {
		s += ", for want of memory"
	}
	if st.Reason != "" {
		s += " (" + st.Reason + ")"
	}
	return s
}

func (k *Keeper) inspect(ctx context.Context, p sandbox.Provider, h sandbox.Handle) (sandbox.State, error) {
	if h == "" {
		return sandbox.State{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	return p.Inspect(ctx, h)
}

// fail stores that a sandbox cannot be had, and returns why: err, unless someone else has changed it meanwhile.
func (k *Keeper) fail(ctx context.Context, rec *agent.SandboxRecord, err error) error {
	return k.end(ctx, rec, agent.SandboxFailed, err)
}

// lose stores that the box of a sandbox has gone by itself, and returns that as an error.
func (k *Keeper) lose(ctx context.Context, rec *agent.SandboxRecord, why string) error {
	return k.end(ctx, rec, agent.SandboxLost, lostError(&rec.Sandbox, why))
}

// gone is lose for a box that has ended as st says.
func (k *Keeper) gone(ctx context.Context, p sandbox.Provider, rec *agent.SandboxRecord, st sandbox.State) error {
	why := lostError(&rec.Sandbox, ended(p, st)+k.tail(ctx, p, rec))
	if st.OOM {
		why.Kind, why.Hint = agent.Exhausted, "give the environment more memory, see size.memory; "+why.Hint
	}
	return k.end(ctx, rec, agent.SandboxLost, why)
}

func (k *Keeper) end(ctx context.Context, rec *agent.SandboxRecord, state agent.SandboxState, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quick)
	defer cancel()
	now, err := k.change(ctx, rec.ID, rec.Generation, func(rec *agent.SandboxRecord) error {
		switch rec.State {
		case agent.SandboxWanted, agent.SandboxStarting, agent.SandboxReady:
			rec.State, rec.Error = state, agent.ErrorOf(why)
			return nil
		}
		return fenced(&rec.Sandbox)
	})
	if errors.Is(err, errFenced) && errors.Is(why, ErrLost) && !errors.Is(err, ErrLost) {
		return why // someone else has found out
	}
	if err != nil {
		return err
	}
	k.log.Warn("a sandbox is of no use any more", "sandbox", rec.ID, "generation", rec.Generation, "state", now.State, "error", why)
	k.detach(rec.ID, why)
	k.poke(rec.ID) // its box is deleted
	return why
}

// remove deletes a box of nobody. When that fails, a sweep does it.
func (k *Keeper) remove(ctx context.Context, p sandbox.Provider, h sandbox.Handle) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quick)
	defer cancel()
	if err := p.Delete(ctx, h); err != nil {
		k.log.Warn("a box was not deleted and will be later", "box", h, "error", err)
	}
}

// alive returns the box of a sandbox that is ready, if it is there. Its driver may be about to connect again.
func (k *Keeper) alive(ctx context.Context, rec *agent.SandboxRecord) (*live, error) {
	done, err := k.boxes.wait(ctx, string(rec.ID))
	if err != nil {
		return nil, err
	}
	defer done()
	lv, err := k.attach(ctx, rec)
	if err != nil {
		return nil, err
	}
	if why := lv.link.Err(); why != nil {
		return nil, k.lose(ctx, rec, why.Error())
	}
	if lv.connected() {
		return lv, nil
	}
	p, err := k.provider(rec.Provider)
	if err != nil {
		return nil, err
	}
	st, err := k.inspect(ctx, p, sandbox.Handle(rec.Handle))
	if err == nil && (st.Phase == sandbox.Absent || st.Phase == sandbox.Exited || st.Phase == sandbox.Created) {
		err = k.gone(ctx, p, rec, st)
	}
	return lv, err
}
