package keeper

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// sweep makes what there is at the providers and what is in the store agree. Nothing that it finds wrong stops it: the next one comes soon.
func (k *Keeper) sweep(ctx context.Context) {
	var boxes []observed
	for _, p := range k.o.Providers { // before the records are read: a record is stored before its box is made
		list, err := k.list(ctx, p)
		if err != nil {
			k.log.Warn("the boxes of a provider cannot be listed", "provider", p.Name(), "error", err)
			continue
		}
		for _, o := range list {
			boxes = append(boxes, observed{o, p})
		}
	}
	volumes := k.volumes(ctx)
	recs, err := k.records(ctx)
	if err != nil {
		k.log.Error("sandboxes cannot be read", "error", err)
		return
	}
	known := map[agent.SandboxID]*agent.SandboxRecord{}
	kept := map[string]bool{}
	for i := range recs {
		known[recs[i].ID] = &recs[i]
		kept[recs[i].Volume] = true
	}
	k.each(ctx, len(boxes), func(i int) { k.orphan(ctx, &boxes[i], known[boxes[i].ID]) })
	k.each(ctx, len(recs), func(i int) { k.review(ctx, recs[i].ID, false) })
	for _, v := range volumes {
		if !kept[v.name] {
			k.log.Warn("what was kept of a pet that is not known is deleted", "volume", v.name)
			if err := v.of.DeleteVolume(ctx, v.name); err != nil {
				k.log.Warn("a volume was not deleted", "volume", v.name, "error", err)
			}
		}
	}
	if recs, err = k.records(ctx); err == nil { // what was found to be of no use is in no pool
		k.pooled(recs)
	}
}

// observed is a box, and where it was seen.
type observed struct {
	sandbox.Observed
	at sandbox.Provider
}

type volume struct {
	name string
	of   sandbox.Volumes
}

func (k *Keeper) list(ctx context.Context, p sandbox.Provider) ([]sandbox.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	return p.List(ctx, k.o.Owner)
}

func (k *Keeper) volumes(ctx context.Context) (out []volume) {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	for _, p := range k.o.Providers {
		v, ok := p.(sandbox.Volumes)
		if !ok {
			continue
		}
		names, err := v.ListVolumes(ctx, k.o.Owner)
		if err != nil {
			k.log.Warn("the volumes of a provider cannot be listed", "provider", p.Name(), "error", err)
		}
		for _, name := range names {
			out = append(out, volume{name, v})
		}
	}
	return out
}

func (k *Keeper) records(ctx context.Context) (all []agent.SandboxRecord, err error) {
	for page := (agent.Page{Limit: agent.MaxPage}); ; {
		list, next, err := k.o.Records.AllSandboxes(ctx, page)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
		if page.After = next; next == "" {
			return all, nil
		}
	}
}

// each calls do for 0 to n-1, some at once, until ctx has ended.
func (k *Keeper) each(ctx context.Context, n int, do func(i int)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, atOnce)
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() { defer func() { <-slots }(); do(i) })
	}
}

// orphan deletes a box that is of no sandbox, or of another generation than its sandbox, or of one that has no box by its record. rec may be nil.
func (k *Keeper) orphan(ctx context.Context, o *observed, rec *agent.SandboxRecord) {
	if !stray(o, rec) {
		return
	}
	done, ok := k.boxes.try(string(o.ID))
	if !ok { // someone is at it
		return
	}
	defer done()
	switch now, err := k.o.Records.Sandbox(ctx, o.ID); {
	case err == nil && !stray(o, &now), err != nil && agent.KindOf(err) != agent.NotFound:
		return
	}
	k.log.Warn("a box that belongs to nothing is deleted", "sandbox", o.ID, "generation", o.Generation, "box", o.Handle)
	k.remove(ctx, o.at, o.Handle)
}

func stray(o *observed, rec *agent.SandboxRecord) bool {
	if rec == nil || rec.Generation != o.Generation || rec.Provider != o.at.Name() {
		return true
	}
	switch rec.State {
	case agent.SandboxWanted, agent.SandboxStarting, agent.SandboxReady:
		return false
	}
	return true
}

// attend looks after the sandboxes that are due.
func (k *Keeper) attend(ctx context.Context) {
	k.mu.Lock()
	due := make([]agent.SandboxID, 0, len(k.due))
	for id := range k.due {
		due = append(due, id)
	}
	clear(k.due)
	k.mu.Unlock()
	k.each(ctx, len(due), func(i int) { k.review(ctx, due[i], true) })
}

// lookSilent is how often it is looked at boxes whose driver is not connected.
const lookSilent = 5 * time.Second

// silent looks at boxes whose driver is not connected: one that ends before it has come back to a server that started has no connection to end by which Run
// would be told.
func (k *Keeper) silent(ctx context.Context) {
	k.mu.Lock()
	lives := slices.Collect(maps.Values(k.lives))
	k.mu.Unlock()
	lives = slices.DeleteFunc(lives, (*live).connected)
	k.each(ctx, len(lives), func(i int) { k.review(ctx, lives[i].id, false) })
}

// review does for a sandbox what its record says that is left to be done. One that someone is at is left alone, unless wait.
func (k *Keeper) review(ctx context.Context, id agent.SandboxID, wait bool) {
	done, ok := k.boxes.try(string(id))
	if !ok && wait {
		short, cancel := context.WithTimeout(ctx, quick)
		defer cancel()
		var err error
		done, err = k.boxes.wait(short, string(id))
		ok = err == nil
	}
	if !ok {
		return
	}
	defer done()
	rec, err := k.o.Records.Sandbox(ctx, id)
	if agent.KindOf(err) == agent.NotFound {
		return
	}
	if err == nil {
		err = k.tend(ctx, &rec)
	}
	if err != nil && ctx.Err() == nil {
		k.log.Warn("a sandbox could not be looked after and will be later", "sandbox", id, "state", rec.State, "error", err)
	}
}

// tend is review of a record, at whose place in k.boxes the caller is.
func (k *Keeper) tend(ctx context.Context, rec *agent.SandboxRecord) error {
	lv := k.live(rec.ID)
	if lv != nil && lv.generation != rec.Generation {
		lv = nil
	}
	if rec.State == agent.SandboxDeleting {
		return k.destroy(ctx, rec)
	}
	if why, err := k.expired(ctx, rec, lv); err != nil || why != "" {
		if err == nil {
			err = k.condemn(ctx, rec, why, func(now *agent.SandboxRecord) bool { return now.Used.Equal(rec.Used) }) // else someone has come just now
		}
		return err
	}
	p, err := k.provider(rec.Provider)
	if err != nil {
		return err
	}
	switch rec.State {
	case agent.SandboxWanted:
		if rec.Pool && rec.Handle == "" { // nobody is at it, so its making was cut short
			return k.condemn(ctx, rec, "it was not made", nil)
		}
		if rec.Pool {
			return k.tendPooled(ctx, p, rec)
		}
	case agent.SandboxStarting, agent.SandboxReady:
		if lv, err = k.attach(ctx, rec); err != nil {
			return err
		}
		if gone, err := k.check(ctx, p, lv, rec); gone || err != nil {
			return err
		}
		if rec.State == agent.SandboxReady && rec.Keep == agent.Pet {
			switch idle, err := k.unused(ctx, rec, lv); {
			case err != nil:
				return err
			case idle:
				return k.stop(ctx, rec, lv)
			}
		}
		return k.flush(ctx, rec, lv)
	case agent.SandboxStopped, agent.SandboxLost, agent.SandboxFailed:
		if rec.Handle != "" {
			return k.bury(ctx, p, rec)
		}
	}
	return nil
}

// tendPooled looks whether a box of a pool still waits. One that was warmed by a server that died does not, nor does one that was ended from outside.
func (k *Keeper) tendPooled(ctx context.Context, p sandbox.Provider, rec *agent.SandboxRecord) error {
	err := warm(ctx, p, sandbox.Handle(rec.Handle))
	switch agent.KindOf(err) {
	case agent.Conflict, agent.NotFound:
		k.pools.forget(poolName{rec.App, rec.Environment}, rec.ID, k.now())                              // and make another
		return k.condemn(ctx, rec, err.Error(), func(now *agent.SandboxRecord) bool { return now.Pool }) // else it was taken just now
	}
	return err
}

// expired says why a sandbox is to be deleted; "" when it is not.
func (k *Keeper) expired(ctx context.Context, rec *agent.SandboxRecord, lv *live) (string, error) {
	switch {
	case rec.Pool: // see pooled
		return "", nil
	case !rec.Expires.IsZero() && !k.now().Before(rec.Expires):
		return "it is older than it may be", nil
	case rec.Keep == agent.Cattle:
		if idle, err := k.unused(ctx, rec, lv); err != nil || idle {
			return "nobody has used it for " + rec.Idle.String(), err
		}
	}
	if k.o.Gone == nil {
		return "", nil
	}
	gone, err := k.o.Gone(ctx, rec.Sandbox)
	if err == nil && gone {
		return "what it was for is no more", nil
	}
	return "", err
}

// unused reports whether a sandbox is idle, and no run that is under way is what keeps it.
func (k *Keeper) unused(ctx context.Context, rec *agent.SandboxRecord, lv *live) (bool, error) {
	if !k.idle(rec, lv) {
		return false, nil
	}
	if rec.Run == "" || k.o.InUse == nil {
		return true, nil
	}
	used, err := k.o.InUse(ctx, rec.Sandbox)
	if err == nil && used && lv != nil {
		lv.touch() // and is asked again when it is idle again
	}
	return err == nil && !used, err
}

// check finds out whether a box that is to run does not. The driver of one that was begun and is not ready may not have been started.
func (k *Keeper) check(ctx context.Context, p sandbox.Provider, lv *live, rec *agent.SandboxRecord) (gone bool, err error) {
	err = lv.link.Err()
	if err != nil {
		err = k.lose(ctx, rec, err.Error())
	} else {
		st, bad := k.inspect(ctx, p, sandbox.Handle(rec.Handle))
		switch {
		case bad != nil:
			return false, bad
		case st.Phase == sandbox.Absent, st.Phase == sandbox.Exited, st.Phase == sandbox.Created && rec.State == agent.SandboxReady:
			err = k.gone(ctx, p, rec, st)
		default:
			return false, nil
		}
	}
	if err != nil && !errors.Is(err, ErrLost) {
		return false, err
	}
	return true, nil
}

// flush stores when a sandbox was used, so that a server that starts again knows.
func (k *Keeper) flush(ctx context.Context, rec *agent.SandboxRecord, lv *live) error {
	last := lv.lastUse()
	if last.Sub(rec.Used) < min(time.Minute, rec.Idle)/2 {
		return nil
	}
	_, err := k.change(ctx, rec.ID, rec.Generation, func(rec *agent.SandboxRecord) error {
		if last.After(rec.Used) {
			rec.Used = last
		}
		return nil
	})
	if errors.Is(err, errFenced) {
		err = nil
	}
	return err
}

// tidy removes the folders of boxes that are not known any more.
func (k *Keeper) tidy(ctx context.Context) {
	list, err := os.ReadDir(k.o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("the folder of sockets cannot be read", "error", err)
	}
	for _, e := range list {
		id, gen, ok := strings.Cut(e.Name(), ".")
		n, err := strconv.ParseInt(gen, 10, 64)
		if !e.IsDir() || !ok || err != nil {
			continue
		}
		rec, err := k.o.Records.Sandbox(ctx, agent.SandboxID(id))
		if err != nil && agent.KindOf(err) != agent.NotFound || err == nil && rec.Generation == n {
			continue
		}
		if err := os.RemoveAll(filepath.Join(k.o.Dir, e.Name())); err != nil {
			k.log.Warn("the folder of a socket was not removed", "error", err)
		}
	}
}
