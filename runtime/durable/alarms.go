package durable

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/store/instance"
)

const (
	duePage    = 256
	clockCheck = time.Second            // how often the clock is looked at, for it may be set forward
	brokenWait = time.Second            // before something that failed for a reason of ours is tried again
	anewEach   = 5 * time.Second        // how often all that is due is walked from the beginning,
	anewSoon   = 100 * time.Millisecond // and when something is known to be missing;
	anewShare  = 20                     // and how many times as long as that took is between two such walks
	longWalk   = 10 * time.Millisecond  // as long as one that takes longer, nothing is walked: at most half of the time of one core
)

// SetAlarm sets or clears an alarm.
func (t *Turn) SetAlarm(ctx context.Context, e instance.AlarmEdit) error {
	if err := t.check(instance.Batch{Alarms: []instance.AlarmEdit{e}}); err != nil {
		return err
	}
	return t.add(ctx, len(e.Name)+len(e.Data), func() {
		was, again := t.alarms[e.Name]
		if again {
			if e.Clear && e.Gen != 0 && (!was.Clear || was.Gen == 0) {
				t.bytes -= len(e.Name) + len(e.Data) // the alarm that it names is gone already
				return
			}
			t.bytes -= len(was.Name) + len(was.Data)
		}
		if t.alarms == nil {
			t.alarms = map[string]instance.AlarmEdit{}
		}
		t.alarms[e.Name] = e
	})
}

// Alarms lists alarms as the turn has them, in the order of names, those behind after. One that was set in this turn has no Gen. Fewer
// than limit are the last.
func (t *Turn) Alarms(ctx context.Context, after string, limit int) ([]instance.Alarm, error) {
	limit, err := instance.CheckLimit(limit)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return nil, t.over
	}
	var out []instance.Alarm
	for {
		ask := min(limit+len(t.alarms), instance.MaxPage)
		stored, err := t.k.store.Alarms(ctx, t.o.id, after, ask)
		if err != nil {
			return nil, err
		}
		last := len(stored) < ask
		end := "" // of the names that this page is about
		if !last {
			end = stored[len(stored)-1].Name
		}
		for _, a := range stored {
			if e, changed := t.alarms[a.Name]; !changed || e.Clear && e.Gen != 0 && e.Gen != a.Gen {
				out = append(out, a)
			}
		}
		for name, e := range t.alarms {
			if !e.Clear && name > after && (last || name <= end) {
				out = append(out, e.Alarm)
			}
		}
		if last || len(out) >= limit {
			break
		}
		after = end
	}
	slices.SortFunc(out, func(a, b instance.Alarm) int { return strings.Compare(a.Name, b.Name) })
	return out[:min(limit, len(out))], nil
}

// Alarm returns one alarm as the turn has it.
func (t *Turn) Alarm(ctx context.Context, name string) (instance.Alarm, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return instance.Alarm{}, false, t.over
	}
	e, changed := t.alarms[name]
	if changed && (!e.Clear || e.Gen == 0) {
		return e.Alarm, !e.Clear, nil
	}
	a, there, err := t.storedAlarm(ctx, name)
	if err != nil || !there || changed && e.Gen == a.Gen {
		return instance.Alarm{}, false, err
	}
	return a, true, nil
}

// storedAlarm reads an alarm as of the newest commit, the one that was read last from memory: an alarm's turn asks for its own again.
func (t *Turn) storedAlarm(ctx context.Context, name string) (instance.Alarm, bool, error) {
	if t.read.known && t.read.name == name {
		return t.read.Alarm, t.read.there, nil
	}
	a, there, err := t.k.store.Alarm(ctx, t.o.id, name)
	if err == nil {
		t.read = readAlarm{name: name, known: true, there: there, Alarm: a}
	}
	return a, there, err
}

// readAlarm is what a turn has read of one alarm since its newest commit.
type readAlarm struct {
	name         string
	known, there bool
	instance.Alarm
}

// earliest is when the loop wakes, so that a commit need not wake it for later alarms.
type earliest struct {
	mu sync.Mutex
	at time.Time // zero while the loop looks
}

func (e *earliest) set(at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = at
}

func (e *earliest) isAfter(t time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at.IsZero() || e.at.After(t)
}

// noticed wakes the loops that a commit gives work to.
func (k *Keeper) noticed(id instance.ID, b *instance.Batch, r instance.Result) {
	if a := k.agenda.Load(); a != nil && len(b.Alarms) > 0 {
		first, later := a.committed(id, b.Alarms, r.Fence.Head, k.opts.Now())
		if later && k.early.isAfter(first) {
			poke(k.alarmSet)
		}
	}
	if len(b.Outbox) > 0 {
		poke(k.sent)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watchAlarms passes alarms that are due to Options.Alarm, those of one instance one after the other. One stays due until a commit
// clears or moves it, so that nothing is lost with this process. Each walk of what is due goes on where the one before ended, so it costs
// what is new; now and then one begins anew, for what others have set.
func (k *Keeper) watchAlarms(ctx context.Context) {
	a := newAgenda(k.opts.Workers, func(d instance.Due) error { return k.ring(ctx, d) }, func() bool { return ctx.Err() != nil }, k.opts.Now, func() { poke(k.alarmSet) })
	k.agenda.Store(a)
	defer func() { k.agenda.Store(nil); a.close() }()
	var (
		w    walks
		last time.Time     // when all was walked
		took time.Duration // by that
	)
	for ctx.Err() == nil {
		began := time.Now()
		k.early.set(time.Time{})
		sleep := clockCheck
		if next := a.retry(); !next.IsZero() {
			sleep = min(sleep, time.Until(next))
		}
		pause := max(anewShare*took, anewSoon)
		missed := a.missed(k.opts.Now())
		if !missed {
			pause = max(pause, anewEach)
		}
		anew := last.IsZero() || began.Sub(last) >= pause
		if missed && !anew {
			sleep = min(sleep, pause-began.Sub(last))
		}
		wake, err := k.walk(ctx, a, &w, anew)
		switch {
		case err != nil && ctx.Err() == nil:
			k.opts.Log.ErrorContext(ctx, "alarms that are due cannot be read and are read again", "error", err)
		case err == nil && anew:
			last, took = time.Now(), time.Since(began)
		}
		if !wake.IsZero() {
			sleep = min(sleep, wake.Sub(k.opts.Now()))
		}
		if took := time.Since(began); took > longWalk {
			rest(ctx, took)
		}
		k.early.set(k.opts.Now().Add(sleep))
		k.sleep(ctx, sleep, k.alarmSet)
	}
}

// walks is how far alarms that are due were looked for.
type walks struct {
	head    instance.Cursor // nothing that was due when it was passed is unknown, but for:
	refused bool            // what the agenda had no room for, which is found
	from    instance.Cursor // behind this
}

// walk puts alarms that are due on the agenda: all of them anew, or those for which there was no room, or those that have become due. It
// returns when the next one is due, if it knows.
func (k *Keeper) walk(ctx context.Context, a *agenda, w *walks, anew bool) (wake time.Time, err error) {
	after := w.head
	room := a.room.Swap(false)
	if room && w.refused {
		after, w.refused = w.from, false
	}
	if anew {
		after, w.refused = "", false
		a.mu.Lock()
		a.behind = false
		a.mu.Unlock()
	}
	for more := true; more && ctx.Err() == nil; {
		now := k.opts.Now()
		a.looks(now)
		page, err := k.store.Due(ctx, now, after, duePage)
		if err != nil {
			a.lookAgain() // what was refused before may not be passed again
			return time.Time{}, err
		}
		for _, d := range page.Alarms {
			if !a.found(d, w.refused) && !w.refused {
				w.refused, w.from = true, after
			}
		}
		after, more, wake = page.Last, page.Next != "", page.Wake
	}
	w.head = after
	return wake, nil
}

// ring deals with an alarm that is due.
func (k *Keeper) ring(ctx context.Context, d instance.Due) error {
	if err := k.opts.Alarm(ctx, d); err != nil {
		if ctx.Err() == nil {
			k.opts.Log.WarnContext(ctx, "an alarm was not dealt with and will be later", "instance", d.ID.Key, "alarm", d.Name, "error", err)
		}
		return err
	}
	k.stats.alarms.Add(1)
	return nil
}

func grouped[T any, K comparable](page []T, of func(T) K) [][]T {
	var out [][]T
	at := map[K]int{}
	for _, v := range page {
		i, ok := at[of(v)]
		if !ok {
			i = len(out)
			at[of(v)] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], v)
	}
	return out
}

// sleep returns after d, when poked, or when ctx ends.
func (k *Keeper) sleep(ctx context.Context, d time.Duration, poked <-chan struct{}) {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-poked:
	case <-ctx.Done():
	}
}

// busy says what is being dealt with, and what failed and is not tried again for a while.
type busy[K comparable] struct {
	mu  sync.Mutex
	now map[K]*attempt
}

type attempt struct {
	again time.Time // zero while it is dealt with; by the clock that does not jump
	asked bool      // it was to begin meanwhile
}

func newBusy[K comparable]() *busy[K] { return &busy[K]{now: map[K]*attempt{}} }

func (b *busy[K]) begin(key K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.now[key]; a != nil && (a.again.IsZero() || a.again.After(time.Now())) {
		a.asked = true
		return false
	}
	b.now[key] = &attempt{}
	return true
}

// end reports whether key was to begin meanwhile.
func (b *busy[K]) end(key K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := b.now[key].asked
	delete(b.now, key)
	return asked
}

func (b *busy[K]) fail(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now[key].again = time.Now().Add(brokenWait)
}

// prune forgets what failed and may be tried again, for it may never come again.
func (b *busy[K]) prune() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for key, a := range b.now {
		if !a.again.IsZero() && !a.again.After(now) {
			delete(b.now, key)
		}
	}
}
