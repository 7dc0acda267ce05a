package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// Delete deletes a sandbox for good, with what is kept of it. When it returns nothing can be done with the sandbox any more and its driver is cut off; the
// box is deleted soon after, however often the server is started again before it is.
func (k *Keeper) Delete(ctx context.Context, app agent.App, id agent.SandboxID) error {
	rec, err := k.record(ctx, app, id)
	if err != nil {
		return err
	}
	return k.condemn(ctx, &rec, "it was deleted", nil)
}

// Release says that what a sandbox is for does not need it any more. Cattle are deleted, as by Delete; a pet is kept, and is stopped when nobody has used it
// for its idle time. It is no error when there is none.
func (k *Keeper) Release(ctx context.Context, app agent.App, whose string) error {
	rec, err := k.o.Records.SandboxFor(ctx, app, whose)
	switch {
	case agent.KindOf(err) == agent.NotFound:
		return nil
	case err != nil:
		return err
	case rec.Keep == agent.Cattle:
		return k.condemn(ctx, &rec, "it is not needed any more", nil)
	}
	_, err = k.change(ctx, rec.ID, 0, func(rec *agent.SandboxRecord) error {
		rec.Run, rec.Used = "", k.now().UTC()
		return nil
	})
	if agent.KindOf(err) == agent.NotFound {
		err = nil
	}
	return err
}

// condemn stores that a sandbox is to be deleted, which fences all else that is under way with it. It does nothing when still, which may be nil, says no.
func (k *Keeper) condemn(ctx context.Context, rec *agent.SandboxRecord, why string, still func(now *agent.SandboxRecord) bool) error {
	_, err := k.change(ctx, rec.ID, 0, func(rec *agent.SandboxRecord) error {
		if still != nil && !still(rec) {
			return fenced(&rec.Sandbox)
		}
		rec.State = agent.SandboxDeleting
		return nil
	})
	if agent.KindOf(err) == agent.NotFound || errors.Is(err, errFenced) {
		return nil
	}
	if err != nil {
		return err
	}
	k.detach(rec.ID, &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("sandbox %s is gone: %s", rec.ID, why), Err: ErrLost})
	k.poke(rec.ID)
	return nil
}

// destroy does what condemn has said: it deletes the boxes of a sandbox until the provider has none by its list and none by their name, then what is kept of
// it, then the record. The caller has its place in k.boxes.
func (k *Keeper) destroy(ctx context.Context, rec *agent.SandboxRecord) error {
	p, err := k.provider(rec.Provider)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, making)
	defer cancel()
	k.detach(rec.ID, fenced(&rec.Sandbox))
	if err := k.clear(ctx, p, rec); err != nil {
		return err
	}
	if err := deleteVolume(ctx, p, rec.Volume); err != nil {
		return err
	}
	for g := int64(1); g <= rec.Generation; g++ {
		if err := os.RemoveAll(k.folder(rec.ID, g)); err != nil {
			return err
		}
	}
	if err := k.o.Records.DropSandbox(ctx, rec.ID); err != nil {
		return err
	}
	k.log.Info("a sandbox was deleted", "sandbox", rec.ID)
	return nil
}

// deleteVolume deletes what was kept of a pet under a name, which may be "".
func deleteVolume(ctx context.Context, p sandbox.Provider, name string) error {
	if v, ok := p.(sandbox.Volumes); ok && name != "" {
		return v.DeleteVolume(ctx, name)
	}
	return nil
}

// clear deletes all boxes of a sandbox, of whatever generation, and looks whether there is one left.
func (k *Keeper) clear(ctx context.Context, p sandbox.Provider, rec *agent.SandboxRecord) error {
	if rec.Handle != "" {
		if err := p.Delete(ctx, sandbox.Handle(rec.Handle)); err != nil {
			return err
		}
	}
	if err := k.purge(ctx, p, rec.ID, 0); err != nil {
		return err
	}
	list, err := p.List(ctx, k.o.Owner)
	if err != nil {
		return err
	}
	for _, o := range list {
		if o.ID == rec.ID {
			return agent.Errorf(agent.Unavailable, "box %s of sandbox %s is there after it was deleted", o.Handle, rec.ID)
		}
	}
	st, err := k.inspect(ctx, p, sandbox.Handle(rec.Handle))
	if err == nil && st.Phase != sandbox.Absent {
		err = agent.Errorf(agent.Unavailable, "box %s of sandbox %s is there after it was deleted", rec.Handle, rec.ID)
	}
	return err
}

// stop ends the box of a pet that nobody uses. What is kept of it stays. The caller has its place in k.boxes.
func (k *Keeper) stop(ctx context.Context, rec *agent.SandboxRecord, lv *live) error {
	p, err := k.provider(rec.Provider)
	if err != nil {
		return err
	}
	now, err := k.change(ctx, rec.ID, rec.Generation, func(rec *agent.SandboxRecord) error {
		if rec.State != agent.SandboxReady || !k.idle(rec, lv) { // someone has come just now
			return fenced(&rec.Sandbox)
		}
		rec.State, rec.Run = agent.SandboxStopped, ""
		return nil
	})
	if errors.Is(err, errFenced) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	k.detach(rec.ID, lostError(&rec.Sandbox, "nobody has used it for "+rec.Idle.String()+", so it was stopped"))
	if err := p.Stop(ctx, sandbox.Handle(now.Handle), grace); err != nil {
		return err
	}
	return k.bury(ctx, p, &now)
}

// bury deletes the box of a sandbox that has none by its record, and forgets it. The caller has its place in k.boxes.
func (k *Keeper) bury(ctx context.Context, p sandbox.Provider, rec *agent.SandboxRecord) error {
	ctx, cancel := context.WithTimeout(ctx, making)
	defer cancel()
	k.detach(rec.ID, lostError(&rec.Sandbox, "its box was deleted"))
	if err := k.clear(ctx, p, rec); err != nil {
		return err
	}
	if err := os.RemoveAll(k.folder(rec.ID, rec.Generation)); err != nil {
		return err
	}
	_, err := k.step(ctx, rec, rec.State, func(rec *agent.SandboxRecord) { rec.Handle = "" })
	if errors.Is(err, errFenced) {
		err = nil
	}
	return err
}

// idle reports whether nobody has used a sandbox for its idle time.
func (k *Keeper) idle(rec *agent.SandboxRecord, lv *live) bool {
	last := rec.Used
	if lv != nil && lv.lastUse().After(last) {
		last = lv.lastUse()
	}
	return k.now().Sub(last) >= rec.Idle
}
