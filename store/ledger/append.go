package ledger

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/internal/disk"
	"github.com/skep-dev/skep/store/kv"
)

// roomEvery is after how many bytes the disk is asked again for its room.
const roomEvery = 64 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// Append writes an event down, whose time is now when it has none. Once it has returned nil the event survives the end of the
// process, and a second later that of the machine; it will count once. After an error, which is Unavailable, it does not
// count, unless it ends a call of a model that was begun: that is written as soon as there is room. Texts longer than 512 bytes are cut.
func (l *Ledger) Append(e agent.UsageEvent) error {
	if err := checkEvent(&e); err != nil {
		return err
	}
	if e.Time.IsZero() {
		e.Time = l.opts.Now()
	}
	p := buffers.Get().(*[]byte)
	defer buffers.Put(p)
	*p = appendEvent((*p)[:0], recordEvent, &e)
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.ready()
	if err == nil {
		err = l.write(*p)
	}
	if err == nil {
		l.end.note(e.Time)
	}
	l.ended(&e, err)
	return err
}

// checkEvent returns an error unless e can be kept.
func checkEvent(e *agent.UsageEvent) error {
	if !nameable(string(e.App)) || e.Agent != "" && !nameable(e.Agent) {
		return agent.Errorf(agent.Internal, "usage of %q in app %q cannot be kept", e.Agent, e.App)
	}
	if (e.Kind == agent.UseModel) != (e.Model != nil) {
		return agent.Errorf(agent.Internal, "usage of a model has to tell of it, and no other may")
	}
	return nil
}

// nameable reports whether s can name what rollups are kept of: the store's keys take it.
func nameable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '/' {
			return false
		}
	}
	return s != "" && len(s) <= 160
}

// Ready returns the error that Append would return, as far as is known, so that work is not begun whose cost could not be
// written down. While all is well it costs nothing.
func (l *Ledger) Ready() error {
	if !l.full.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready()
}

// ready makes sure that a record can be written at size. The caller holds mu.
func (l *Ledger) ready() error {
	switch {
	case l.broken != nil:
		return l.broken
	case l.file == nil:
		return agent.Wrap(agent.Unavailable, os.ErrClosed, "the usage ledger is closed")
	}
	if l.full.Load() || l.size-l.checked >= roomEvery {
		if err := disk.Room(l.dir, l.opts.MinFree); err != nil {
			l.full.Store(true)
			return refusal(err)
		}
		l.full.Store(false)
		l.checked = l.size
	}
	if l.sealed || l.size >= l.opts.Segment {
		return l.next()
	}
	return nil
}

// write puts one record at the end of the segment. What a write that failed left there is written over by the next, or cut
// off like any torn record.
func (l *Ledger) write(b []byte) error {
	place(b, l.segment, l.size)
	if _, err := l.file.WriteAt(b, l.size); err != nil {
		l.full.Store(true)
		return refusal(err)
	}
	l.size += int64(len(b))
	return nil
}

// next seals the segment, if there is one that is not, and begins another. The caller holds mu.
func (l *Ledger) next() error {
	if !l.sealed {
		if err := l.write(appendEnd(nil, l.end)); err != nil {
			return err
		}
		l.sealed = true
	}
	if l.file != nil {
		if err := errors.Join(l.file.Truncate(l.size), l.file.Sync()); err != nil {
			return l.fail(err)
		}
	}
	n := l.segment + 1
	f, err := os.OpenFile(segmentPath(l.dir, n), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return refusal(err)
	}
	was := l.file
	if err := l.start(f, n); err != nil {
		_ = f.Close()
		return err
	}
	if was != nil {
		l.retired = append(l.retired, was)
	}
	return nil
}

// start makes f, whose content is worth nothing, the newest segment.
func (l *Ledger) start(f *os.File, n int64) error {
	born := l.opts.Now()
	if _, err := f.WriteAt(header(n, born), 0); err != nil {
		return refusal(err)
	}
	if err := errors.Join(f.Truncate(headerSize), f.Sync(), syncDir(l.dir)); err != nil {
		return l.fail(err)
	}
	l.file, l.segment, l.born, l.sealed, l.end = f, n, born, false, ending{}
	l.size, l.synced, l.checked = headerSize, headerSize, -roomEvery
	return nil
}

// fail refuses everything after a sync that failed: the kernel may have dropped what it could not write. The caller holds mu.
func (l *Ledger) fail(err error) error {
	l.broken = &agent.Error{
		Kind: agent.Unavailable, Msg: "the disk failed while usage was written", Err: err,
		Hint: "look at the disk and the log, then restart Skep",
	}
	l.full.Store(true)
	return l.broken
}

// Sync makes all that was appended survive a power cut, and notes that in the segment. A segment of an earlier day is ended.
func (l *Ledger) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	_, _, err := l.sync()
	return err
}

// sync returns up to where the ledger is on disk. The caller holds syncing.
func (l *Ledger) sync() (segment, offset int64, err error) {
	l.mu.Lock()
	for _, f := range l.retired {
		_ = f.Close()
	}
	l.retired = nil
	if l.broken != nil || l.file == nil {
		err := l.broken
		l.mu.Unlock()
		return 0, 0, err
	}
	if len(l.open) > 0 {
		l.settle()
	}
	f, segment, size, clean := l.file, l.segment, l.size, l.size == l.synced
	if now := l.opts.Now(); clean && l.end.events > 0 && agent.UsageDay(now) > agent.UsageDay(l.born) {
		err := l.next()
		l.mu.Unlock()
		return segment, size, err
	}
	l.mu.Unlock()
	if clean {
		return segment, size, nil
	}
	err = f.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return 0, 0, l.fail(err)
	}
	if l.segment != segment || l.sealed { // ended meanwhile, which synced it
		return segment, size, nil
	}
	if err := l.write(appendSync(nil, size)); err == nil && l.size == size+syncSize {
		l.synced = l.size // nobody has appended meanwhile; the note itself matters only when something follows it
	}
	return segment, size, nil
}

const syncSize = recordHead + 1 + 8

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// refusal is what an append returns that changed nothing.
func refusal(err error) error {
	if errors.Is(err, kv.ErrFull) || errors.Is(err, syscall.ENOSPC) {
		return &agent.Error{
			Kind: agent.Unavailable, Msg: "the disk is nearly full; usage cannot be written down", Err: err,
			Hint: "make room on the disk of the data directory; no restart is needed",
		}
	}
	return agent.Wrap(agent.Unavailable, err, "usage could not be written down")
}
