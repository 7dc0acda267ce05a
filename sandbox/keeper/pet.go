package keeper

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Recreate makes a pet anew: in a box of env, a revision that is stored, with nothing of what was kept of it but its checkpoint, which is taken before. An
// error before that is stored leaves the pet as it was. After it, each Open goes on to make the new box, and Recreate returns when that is ready.
func (k *Keeper) Recreate(ctx context.Context, app agent.App, id agent.SandboxID, env agent.Environment) (agent.Sandbox, error) {
	return k.withPet(ctx, app, id, func(rec agent.SandboxRecord) (agent.Sandbox, error) {
		if _, err := k.admit(ctx, &env, agent.Pet, rec.Provider); err != nil {
			return agent.Sandbox{}, err
		}
		now, err := k.giveUp(ctx, rec, &env, func(rec *agent.SandboxRecord) {
			rec.Volume = ""
			anew(rec, &env)
		})
		if err != nil {
			return agent.Sandbox{}, err
		}
		b, err := k.bring(ctx, now, nil)
		if err != nil {
			return agent.Sandbox{}, err
		}
		return b.Record(), nil
	})
}

// Hibernate gives up the box of a pet and all that is kept of it, once its checkpoint is stored. Its next use makes another, into which that is put back.
// When Hibernate returns, nothing can be done in the old box any more; what is left of it is deleted soon after.
func (k *Keeper) Hibernate(ctx context.Context, app agent.App, id agent.SandboxID) (agent.Sandbox, error) {
	return k.withPet(ctx, app, id, func(rec agent.SandboxRecord) (agent.Sandbox, error) {
		now, err := k.giveUp(ctx, rec, nil, rest)
		return now.Sandbox, err
	})
}

// rest says that a pet has neither a box nor a volume.
func rest(rec *agent.SandboxRecord) {
	rec.State, rec.Run, rec.Volume, rec.Error, rec.Started = agent.SandboxStopped, "", "", nil, time.Time{}
}

// Reset gives up the box of a pet, all that is kept of it, and its checkpoint. Its next use begins with nothing, in a box of env. It returns as Hibernate does.
func (k *Keeper) Reset(ctx context.Context, app agent.App, id agent.SandboxID, env agent.Environment) (agent.Sandbox, error) {
	return k.withPet(ctx, app, id, func(rec agent.SandboxRecord) (agent.Sandbox, error) {
		now, err := k.part(ctx, &rec, func(rec *agent.SandboxRecord) {
			rest(rec)
			rec.Environment, rec.Checkpoint = env.Ref(), agent.SandboxCheckpoint{}
		})
		return now.Sandbox, err
	})
}

// withPet has do change a pet that nobody works in, and keeps others from opening it meanwhile.
func (k *Keeper) withPet(ctx context.Context, app agent.App, id agent.SandboxID, do func(agent.SandboxRecord) (agent.Sandbox, error)) (sb agent.Sandbox, err error) {
	defer func() { err = typed(ctx, err, "sandbox "+string(id)) }()
	rec, done, err := k.held(ctx, app, id)
	if err != nil {
		return sb, err
	}
	defer done()
	if err := k.free(ctx, &rec); err != nil {
		return sb, err
	}
	if rec, err = k.use(ctx, &rec, nil); err != nil {
		return sb, err
	}
	return do(rec)
}

// free returns why a sandbox may not be given up now.
func (k *Keeper) free(ctx context.Context, rec *agent.SandboxRecord) error {
	if rec.Keep != agent.Pet {
		return &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("sandbox %s is of one run or caller alone, and only one that an agent keeps can be made anew", rec.ID),
			Hint: "skep agent update AGENT --keep pet has an agent keep its sandbox",
		}
	}
	if rec.Run != "" && k.o.InUse != nil {
		switch used, err := k.o.InUse(ctx, rec.Sandbox); {
		case err != nil:
			return err
		case used:
			return &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("run %s works in sandbox %s", rec.Run, rec.ID), Hint: "wait until it has ended, or cancel it: skep run cancel " + string(rec.Run)}
		}
	}
	if lv := k.live(rec.ID); lv != nil && lv.busy.Load() > 0 {
		return &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("somebody works in sandbox %s", rec.ID), Hint: "try again when that has ended"}
	}
	return nil
}

// giveUp takes the checkpoint of a pet, and stores it with change, which gives its box and its volume up. One that is not ready is made so before, as bring
// does with env. What has to be put back yet is still what was taken.
func (k *Keeper) giveUp(ctx context.Context, rec agent.SandboxRecord, env *agent.Environment, change func(*agent.SandboxRecord)) (agent.SandboxRecord, error) {
	saved := rec.Checkpoint
	if rec.Volume != "" && !saved.Pending {
		b, err := k.bring(ctx, rec, env)
		if err != nil {
			return rec, err
		}
		rec = *b.lv.rec.Load()
		if saved, err = k.save(ctx, b.lv, &rec); err != nil {
			return rec, err
		}
	}
	return k.part(ctx, &rec, func(rec *agent.SandboxRecord) {
		rec.Checkpoint = saved
		change(rec)
	})
}

// part stores a change that gives up the box and the volume of a pet, and deletes them. What of this fails is left to the sweep.
func (k *Keeper) part(ctx context.Context, rec *agent.SandboxRecord, change func(*agent.SandboxRecord)) (agent.SandboxRecord, error) {
	now, err := k.step(ctx, rec, rec.State, change)
	if err != nil {
		return *rec, err
	}
	k.detach(rec.ID, lostError(&rec.Sandbox, "what was kept of it was given up"))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), making)
	defer cancel()
	if err := k.discard(ctx, rec, &now); err != nil {
		k.log.Warn("what was given up of a sandbox was not deleted and will be later", "sandbox", rec.ID, "error", err)
		k.poke(rec.ID)
	}
	return now, nil
}

// discard deletes the box and the volume that was has, and that now has not.
func (k *Keeper) discard(ctx context.Context, was, now *agent.SandboxRecord) error {
	p, err := k.provider(was.Provider)
	if err != nil {
		return err
	}
	done, err := k.boxes.wait(ctx, string(was.ID))
	if err != nil {
		return err
	}
	defer done()
	if now.State == agent.SandboxStopped {
		err = k.bury(ctx, p, now)
	} else if err = k.purge(ctx, p, was.ID, now.Generation); err == nil {
		err = os.RemoveAll(k.folder(was.ID, was.Generation))
	}
	if err != nil {
		return err
	}
	return deleteVolume(ctx, p, was.Volume)
}
