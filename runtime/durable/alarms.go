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
	clockCheck = time.Second // how often the clock is looked at, for it may be set forward
	brokenWait = time.Second // before something that failed for a reason of ours is tried again
)

// SetAlarm sets or clears an alarm.
func (t *Turn) SetAlarm(ctx context.Context, e instance.AlarmEdit) error {
	return t.add(ctx, len(e.Name)+len(e.Data), func() {
		if t.alarms == nil {
			t.alarms = map[string]instance.AlarmEdit{}
		}
		t.alarms[e.Name] = e
	})
}

// Alarms lists alarms as the turn has them, in the order of names, those behind after. One that was set in this turn has no Gen.
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
	list, err := t.k.store.Alarms(ctx, t.o.id, after, min(limit+len(t.alarms), instance.MaxPage))
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(a instance.Alarm) bool {
		e, changed := t.alarms[a.Name]
		return changed && (!e.Clear || e.Gen == 0 || e.Gen == a.Gen)
	})
	for name, e := range t.alarms {
		if !e.Clear && name > after {
			list = append(list, e.Alarm)
		}
	}
	slices.SortFunc(list, func(a, b instance.Alarm) int { return strings.Compare(a.Name, b.Name) })
	return list[:min(limit, len(list))], nil
}

// Alarm returns one alarm as the turn has it.
func (t *Turn) Alarm(ctx context.Context, name string) (instance.Alarm, bool, error) {
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

// watchAlarms passes alarms that are due to Options.Alarm. One stays due until a commit clears or moves it, so that nothing is lost
// with this process; what is known here is only which are being dealt with.
func (k *Keeper) watchAlarms(ctx context.Context) {
	var (
		work  sync.WaitGroup
		slots = make(chan struct{}, k.opts.Workers)
		busy  = newBusy[dueKey]()
	)
	defer work.Wait()
	for ctx.Err() == nil {
		k.early.set(time.Time{})
		wake := k.opts.Now().Add(clockCheck)
		for after, more := instance.Cursor(""), true; more && ctx.Err() == nil; {
			page, err := k.store.Due(ctx, k.opts.Now(), after, duePage)
			if err != nil {
				if ctx.Err() == nil {
					k.opts.Log.ErrorContext(ctx, "alarms that are due cannot be read and are read again", "error", err)
				}
				break
			}
			for _, d := range page.Alarms {
				key := dueKey{d.ID, d.Name}
				if !busy.begin(key, k.opts.Now()) {
					continue
				}
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				work.Go(func() {
					defer func() { <-slots }()
					err := k.opts.Alarm(ctx, d)
					if err != nil && ctx.Err() == nil {
						k.opts.Log.WarnContext(ctx, "an alarm was not dealt with and will be later", "instance", d.ID.Key, "alarm", d.Name, "error", err)
						busy.fail(key, k.opts.Now().Add(brokenWait))
						return
					}
					k.stats.alarms.Add(1)
					busy.end(key)
				})
			}
			after, more = page.Next, page.Next != ""
			if !page.Wake.IsZero() && page.Wake.Before(wake) {
				wake = page.Wake
			}
		}
		k.early.set(wake)
		k.sleepUntil(ctx, wake, k.alarmSet)
	}
}

// sleepUntil returns at that time, when poked, or when ctx ends.
func (k *Keeper) sleepUntil(ctx context.Context, at time.Time, poked <-chan struct{}) {
	timer := time.NewTimer(max(at.Sub(k.opts.Now()), time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-poked:
	case <-ctx.Done():
	}
}

// busy says what is being dealt with, and what failed and may be tried again at some time.
type busy[K comparable] struct {
	mu  sync.Mutex
	now map[K]time.Time // zero while it is dealt with
}

func newBusy[K comparable]() *busy[K] { return &busy[K]{now: map[K]time.Time{}} }

func (b *busy[K]) begin(key K, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if again, there := b.now[key]; there && (again.IsZero() || again.After(now)) {
		return false
	}
	b.now[key] = time.Time{}
	return true
}

func (b *busy[K]) end(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.now, key)
}

func (b *busy[K]) fail(key K, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now[key] = again
}
