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
	clockCheck = time.Second           // how often the clock is looked at, for it may be set forward
	brokenWait = time.Second           // before something that failed for a reason of ours is tried again
	longWalk   = 10 * time.Millisecond // as long as one that takes longer, nothing is walked: at most half of the time of one core
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
	if name == "" {
		return instance.Alarm{}, false, nil
	}
	t.mu.Lock()
	if e, changed := t.alarms[name]; changed && (!e.Clear || e.Gen == 0) {
		t.mu.Unlock()
		return e.Alarm, !e.Clear, nil
	}
	t.mu.Unlock()
	// The name right before it in the order of names.
	list, err := t.Alarms(ctx, before(name), 1)
	if err != nil || len(list) == 0 || list[0].Name != name {
		return instance.Alarm{}, false, err
	}
	return list[0], true, nil
}

// before returns a text that sorts below name and above all that sort below name, as far as names of alarms go.
func before(name string) string {
	last := name[len(name)-1]
	if last == 0 {
		return name[:len(name)-1]
	}
	return name[:len(name)-1] + string([]byte{last - 1}) + strings.Repeat("\xff", instance.MaxAlarmName)
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
func (k *Keeper) noticed(b *instance.Batch) {
	for _, a := range b.Alarms {
		if !a.Clear && k.early.isAfter(a.At) {
			poke(k.alarmSet)
			break
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

type dueKey struct {
	id   instance.ID
	name string
}

// watchAlarms passes alarms that are due to Options.Alarm, those of one instance one after the other. One stays due until a commit
// clears or moves it, so that nothing is lost with this process; what is known here is only which are being dealt with.
func (k *Keeper) watchAlarms(ctx context.Context) {
	var (
		crew   = newCrew(k.opts.Workers, func() { poke(k.alarmSet) })
		busy   = newBusy[instance.ID]()
		failed = newBusy[dueKey]()
	)
	defer crew.wait()
	for ctx.Err() == nil {
		began := time.Now()
		k.early.set(time.Time{})
		sleep := clockCheck
		busy.prune()
		failed.prune()
		for after, more := instance.Cursor(""), true; more && ctx.Err() == nil; {
			page, err := k.store.Due(ctx, k.opts.Now(), after, duePage)
			if err != nil {
				if ctx.Err() == nil {
					k.opts.Log.ErrorContext(ctx, "alarms that are due cannot be read and are read again", "error", err)
				}
				break
			}
			for _, list := range byInstance(page.Alarms) {
				id := list[0].ID
				if !busy.begin(id) {
					continue
				}
				bytes := 0
				for _, d := range list {
					bytes += len(d.Data)
				}
				given := crew.give(id.App, bytes, func() {
					k.ring(ctx, list, failed)
					if busy.end(id) {
						poke(k.alarmSet) // more were due meanwhile
					}
				})
				if !given {
					busy.end(id)
				}
			}
			after, more = page.Next, page.Next != ""
			if !page.Wake.IsZero() {
				sleep = min(sleep, page.Wake.Sub(k.opts.Now()))
			}
		}
		if took := time.Since(began); took > longWalk {
			rest(ctx, took)
		}
		k.early.set(k.opts.Now().Add(sleep))
		k.sleep(ctx, sleep, k.alarmSet)
	}
}

// ring deals with alarms of one instance that are due.
func (k *Keeper) ring(ctx context.Context, list []instance.Due, failed *busy[dueKey]) {
	for _, d := range list {
		key := dueKey{d.ID, d.Name}
		if ctx.Err() != nil || !failed.begin(key) {
			continue
		}
		if err := k.opts.Alarm(ctx, d); err != nil {
			if ctx.Err() == nil {
				k.opts.Log.WarnContext(ctx, "an alarm was not dealt with and will be later", "instance", d.ID.Key, "alarm", d.Name, "error", err)
			}
			failed.fail(key)
			continue
		}
		k.stats.alarms.Add(1)
		failed.end(key)
	}
}

// byInstance sorts a page into alarms of one instance each, in their order.
func byInstance(page []instance.Due) [][]instance.Due {
	return grouped(page, func(d instance.Due) instance.ID { return d.ID })
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
