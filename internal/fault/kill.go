package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// kill kills a writing process several times in one data directory, each time after another number of commits.
func kill(ctx context.Context, l *lab, t *tally) error {
	dir := filepath.Join(l.dir, "data")
	defer os.RemoveAll(dir)
	if err := prepare(dir, l.engine); err != nil {
		return err
	}
	var acks []ack
	for range l.times(5) {
		p, err := start(ctx, task{Dir: dir, Engine: l.engine, MinFree: -1})
		if err != nil {
			return err
		}
		before := len(acks)
		err = p.collect(&acks, time.Minute, count(1+l.rng.IntN(1500)))
		p.kill(&acks)
		if err != nil {
			return fmt.Errorf("%w: %s", err, p.stderr.String())
		}
		(*t)["kills"]++
		(*t)["commits"] += len(acks) - before
		if err := l.audit(ctx, t, dir, acks); err != nil {
			return err
		}
	}
	return nil
}

// audit checks a store of which nothing may be lost.
func (l *lab) audit(ctx context.Context, t *tally, dir string, acks []ack) error {
	s, err := open(dir, l.engine, -1)
	if err != nil {
		l.logf("does not open: %v", err)
		(*t)[unsound]++
		return nil
	}
	o, err := check(s.Store, acks)
	if err = errors.Join(err, s.close()); err != nil {
		return err
	}
	(*t)[lost] += o.Lost
	(*t)[wrong] += o.Wrong
	if o.damaged() {
		(*t)[unsound]++
	}
	if o.damaged() || o.silent() {
		l.logf("%+v", o)
	}
	return ctx.Err()
}
