package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// closed makes a data directory of some thousand commits, which is closed or was left behind by a kill, and returns what was
// acknowledged.
func (l *lab) closed(ctx context.Context, dir string, commits int64, killed bool) ([]ack, error) {
	if err := prepare(dir, l.engine); err != nil {
		return nil, err
	}
	p, err := start(ctx, task{Dir: dir, Engine: l.engine, MinFree: -1, Commits: commits})
	if err != nil {
		return nil, err
	}
	var acks []ack
	err = p.collect(&acks, time.Minute, count(int(commits)))
	if killed {
		p.kill(&acks)
	} else if eerr := p.end(&acks); err == nil {
		err = eerr
	}
	return acks, err
}

// flip changes one bit in files of a data directory, more often in the larger ones, each time in a fresh copy: half of the times in one
// that was closed, half in one that a kill left behind.
func flip(ctx context.Context, l *lab, t *tally) error {
	for _, killed := range []bool{false, true} {
		if err := l.flip(ctx, t, killed, (l.times(l.flips)+1)/2); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) flip(ctx context.Context, t *tally, killed bool, times int) error {
	base, dir := filepath.Join(l.dir, "base"), filepath.Join(l.dir, "data")
	defer os.RemoveAll(base)
	acks, err := l.closed(ctx, base, 2000, killed)
	if err != nil {
		return err
	}
	list := filepath.Join(l.dir, "acks")
	if err := writeAcks(list, acks); err != nil {
		return err
	}
	for range times {
		name, err := l.pick(base)
		if err != nil {
			return err
		}
		if err := copyDir(base, dir); err != nil {
			return err
		}
		at, err := l.flipBit(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		(*t)["flips"]++
		o, err := outcomeOf(ctx, task{Dir: dir, Engine: l.engine, Check: list})
		if ctx.Err() != nil {
			return nil
		}
		l.judge(t, o, err, fmt.Sprintf("%s at %d", name, at))
	}
	return nil
}

// judge sorts the outcome of damage that was done.
func (l *lab) judge(t *tally, o outcome, err error, what string) {
	switch {
	case err != nil:
		(*t)[died]++
	case o.Refused != "":
		(*t)["refused to open"]++
		return
	case o.silent():
		(*t)[lost] += o.Lost
		(*t)[wrong] += o.Wrong
	case o.Reported > 0 && o.Verify == "":
		(*t)[undetected]++
	case o.Reported > 0:
		(*t)["reported by reads and Verify"]++
		return
	case o.Verify != "":
		(*t)["reported by Verify"]++
		return
	default:
		(*t)["harmless"]++
		return
	}
	l.logf("%s: %+v %v", what, o, err)
}

// pick names a file of the data directory: mostly one of the database, the larger the likelier, else a blob.
func (l *lab) pick(dir string) (string, error) {
	var names, blobs []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if b, rerr := os.ReadFile(path); err == nil && rerr == nil && used(b) > 0 {
			if strings.HasPrefix(name, "blobs") {
				blobs = append(blobs, name)
				return nil
			}
			for range 1 + used(b)>>18 {
				names = append(names, name)
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if l.rng.IntN(10) == 0 {
		names = blobs
	}
	return names[l.rng.IntN(len(names))], nil
}

// used is how long a file is without the zeros that a log was made with.
func used(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }

func (l *lab) flipBit(path string) (at int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	at = l.rng.IntN(used(b))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte{b[at] ^ 1<<l.rng.IntN(8)}, int64(at))
	return at, err
}

// copyDir copies with holes, of which Badger's logs have many.
func copyDir(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// torn cuts bytes off the end of the newest log of a killed process. Whatever is gone then had been answered.
func torn(ctx context.Context, l *lab, t *tally) error {
	base, dir := filepath.Join(l.dir, "base"), filepath.Join(l.dir, "data")
	defer os.RemoveAll(base)
	acks, err := l.closed(ctx, base, 500, true)
	if err != nil {
		return err
	}
	list := filepath.Join(l.dir, "acks")
	if err := writeAcks(list, acks); err != nil {
		return err
	}
	for range l.times(10) {
		if err := copyDir(base, dir); err != nil {
			return err
		}
		name, err := newestLog(filepath.Join(dir, "db"))
		if err != nil {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		cut := 1 + l.rng.IntN(300)
		if err := os.Truncate(name, int64(max(0, used(b)-cut))); err != nil {
			return err
		}
		(*t)["cuts"]++
		o, err := outcomeOf(ctx, task{Dir: dir, Engine: l.engine, Check: list})
		if ctx.Err() != nil {
			return nil
		}
		l.judge(t, o, err, fmt.Sprintf("%s cut by %d bytes", filepath.Base(name), cut))
	}
	return nil
}

func newestLog(db string) (string, error) {
	for _, pattern := range []string{"*.mem", "*.log"} {
		names, err := filepath.Glob(filepath.Join(db, pattern))
		if err != nil {
			return "", err
		}
		for i := len(names) - 1; i >= 0; i-- {
			if b, err := os.ReadFile(names[i]); err == nil && used(b) > 100 {
				return names[i], nil
			}
		}
	}
	return "", fmt.Errorf("no log in %s", db)
}
