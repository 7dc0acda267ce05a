package durable

import (
	"context"

	"github.com/skep-dev/skep/store/instance"
)

// Delete removes an instance, its children first. ended, when given, is told of each right before, in its last turn.
func (k *Keeper) Delete(ctx context.Context, id instance.ID, ended func(context.Context, *Turn) error) error {
	t, err := k.Enter(ctx, id, Entry{Exists: true})
	if err != nil {
		return err
	}
	defer t.Abandon()
	return t.delete(ctx, ended)
}

func (t *Turn) delete(ctx context.Context, ended func(context.Context, *Turn) error) error {
	for {
		children, err := t.k.store.Children(ctx, t.o.id, instance.ID{}, instance.MaxPage)
		if err != nil {
			return err
		}
		if len(children) == 0 {
			break
		}
		for _, child := range children {
			if err := t.DeleteChild(ctx, child, ended); err != nil {
				return err
			}
		}
		if err := t.Commit(ctx); err != nil {
			return err
		}
	}
	if ended != nil {
		if err := ended(ctx, t); err != nil {
			return err
		}
		if err := t.Commit(ctx); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	if err := t.k.store.Delete(ctx, t.o.id, t.o.info.Fence); err != nil {
		t.o.have = false
		return err
	}
	closeMemo(t.o.memo)
	t.o.have, t.o.memo, t.o.info = false, nil, instance.Info{}
	t.forgetParts()
	return nil
}

// DeleteChild removes an instance that is this one's own, and all below it. It is taken off the list with the turn's commit.
func (t *Turn) DeleteChild(ctx context.Context, child instance.ID, ended func(context.Context, *Turn) error) error {
	switch info, err := t.k.store.Info(ctx, child); {
	case err != nil && !isGone(err):
		return err
	case err == nil && info.Parent == t.o.id: // and not another, which was there first
		if err := t.k.Delete(Holding(ctx, t.o.id), child, ended); err != nil && !isGone(err) {
			return err
		}
	}
	return t.Child(ctx, instance.Child{Remove: true, ID: child})
}
