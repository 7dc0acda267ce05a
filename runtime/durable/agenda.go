package durable

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

const (
	agendaAlarms = 8192    // of one app, that are known at once
	agendaBytes  = 1 << 20 // of their data
	inARow       = 16      // alarms of an instance before others of its app have their turn
)

type dueKey struct {
	id   instance.ID
	name string
}

// agenda has the alarms that are due until they were dealt with, those of one instance one after the other. So each is read from the store
// once, however long its instance is busy. What an app has beyond its bounds stays in the store alone, and is looked for when there is room.
type agenda struct {
	crew *crew
	ring func(d instance.Due) error
	over func() bool // nothing more is begun
	now  func() time.Time
	poke func()
	room atomic.Bool // an app whose alarms were refused takes some again

	mu     sync.Mutex // before that of crew
	closed bool
	passed time.Time // up to here alarms were looked for: one that is set earlier would not be found
	behind bool      // and one was, for which there was no room
	lines  map[instance.ID]*alarmLine
	known  map[dueKey]*dueAlarm
	apps   map[agent.App]*agendaApp
	failed []failedAlarm // in the order of time
}

// alarmLine is an instance that a worker is about to deal with, or does. One that waits for nothing is not there.
type alarmLine struct{ waiting []*dueAlarm }

type dueAlarm struct {
	instance.Due
	working bool
	next    *instance.Due // that it was set to meanwhile, which is due as well
}

type agendaApp struct {
	alarms, bytes int
	refused       bool
}

type failedAlarm struct {
	alarm *dueAlarm
	again time.Time // by the clock that does not jump
}

func newAgenda(workers int, ring func(instance.Due) error, over func() bool, now func() time.Time, poke func()) *agenda {
	a := &agenda{ring: ring, over: over, now: now, poke: poke, lines: map[instance.ID]*alarmLine{}, known: map[dueKey]*dueAlarm{}, apps: map[agent.App]*agendaApp{}}
	a.crew = newCrew(workers, a.hasRoom)
	return a
}

func (a *agenda) hasRoom() {
	a.room.Store(true)
	a.poke()
}

// close lets nothing more begin, and waits for what has begun.
func (a *agenda) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.crew.wait()
}

// looks says that alarms which are due at now are looked for next. It is called before the store is asked.
func (a *agenda) looks(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.passed = now.Round(0)
}

// lookAgain has all that is due looked for anew.
func (a *agenda) lookAgain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.behind = true
}

// missed reports whether something is due that is not found by looking further.
func (a *agenda) missed(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.behind || now.Round(0).Before(a.passed) // the clock was set back
}

// found takes an alarm that is due. It reports whether there was room for it; in a walk that has passed some for which there was none, there is
// none for later ones of their apps, which would be dealt with before them.
func (a *agenda) found(d instance.Due, passed bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return true
	}
	app := a.apps[d.ID.App]
	if passed && app != nil && app.refused && a.known[dueKey{d.ID, d.Name}] == nil {
		return false
	}
	return a.take(d)
}

func (a *agenda) take(d instance.Due) bool {
	key := dueKey{d.ID, d.Name}
	if was := a.known[key]; was != nil {
		switch {
		case d.Gen <= was.Gen:
		case !was.working:
			a.count(d.ID.App, 0, len(d.Data)-len(was.Data))
			was.Due = d
		case was.next == nil || d.Gen > was.next.Gen:
			was.next = &d
		}
		return true
	}
	app := a.apps[d.ID.App]
	if app != nil && (app.alarms >= agendaAlarms || app.bytes+len(d.Data) > agendaBytes) {
		app.refused = true
		return false
	}
	alarm := &dueAlarm{Due: d}
	if !a.enqueue(alarm) {
		return false
	}
	a.known[key] = alarm
	a.count(d.ID.App, 1, len(d.Data))
	return true
}

// enqueue has an alarm dealt with after what its instance has before it, unless the crew has no room for the instance.
func (a *agenda) enqueue(alarm *dueAlarm) bool {
	line := a.lines[alarm.ID]
	if line == nil {
		line = &alarmLine{}
		if !a.crew.give(alarm.ID.App, 0, func() { a.work(alarm.ID, line) }) {
			return false
		}
		a.lines[alarm.ID] = line
	}
	line.waiting = append(line.waiting, alarm)
	return true
}

// count keeps how much of an app is known, and says when there is room again.
func (a *agenda) count(name agent.App, alarms, bytes int) {
	app := a.apps[name]
	if app == nil {
		app = &agendaApp{}
		a.apps[name] = app
	}
	app.alarms += alarms
	app.bytes += bytes
	if app.refused && app.alarms <= agendaAlarms/4 && app.bytes <= agendaBytes/4 {
		app.refused = false
		a.hasRoom()
	}
	if app.alarms == 0 {
		delete(a.apps, name)
	}
}

// work deals with some of what an instance has, and then lets others of its app come first.
func (a *agenda) work(id instance.ID, line *alarmLine) {
	for range inARow {
		alarm := a.begin(id, line)
		if alarm == nil || a.over() {
			return
		}
		err := a.ring(alarm.Due)
		if a.over() {
			return // it stays due, unless it was dealt with
		}
		a.end(line, alarm, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(line.waiting) == 0 {
		delete(a.lines, id)
		return
	}
	a.crew.again(id.App, func() { a.work(id, line) })
}

func (a *agenda) begin(id instance.ID, line *alarmLine) *dueAlarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(line.waiting) > 0 {
		alarm := line.waiting[0]
		line.waiting[0] = nil
		line.waiting = line.waiting[1:]
		if !alarm.At.After(a.now()) {
			alarm.working = true
			return alarm
		}
		a.behind = true // the clock was set back
		a.forget(alarm)
	}
	delete(a.lines, id)
	return nil
}

func (a *agenda) forget(alarm *dueAlarm) {
	delete(a.known, dueKey{alarm.ID, alarm.Name})
	a.count(alarm.ID.App, -1, -len(alarm.Data))
}

func (a *agenda) end(line *alarmLine, alarm *dueAlarm, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alarm.working = false
	next := alarm.next
	if next != nil {
		a.count(alarm.ID.App, 0, len(next.Data)-len(alarm.Data))
		alarm.Due, alarm.next = *next, nil
	}
	switch {
	case err != nil && !a.apps[alarm.ID.App].refused:
		a.failed = append(a.failed, failedAlarm{alarm, time.Now().Add(brokenWait)})
	case err == nil && next != nil:
		line.waiting = append(line.waiting, alarm)
	default:
		a.behind = a.behind || err != nil // others of the app come first
		a.forget(alarm)
	}
}

// retry has what failed a while ago dealt with again. It returns when the next of them is to be.
func (a *agenda) retry() (next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for len(a.failed) > 0 {
		first := a.failed[0]
		if first.again.After(now) {
			return first.again
		}
		a.failed = a.failed[1:]
		if !a.enqueue(first.alarm) {
			a.failed = append(a.failed, failedAlarm{first.alarm, now.Add(brokenWait)})
		}
	}
	return time.Time{}
}

// committed takes what a commit of an instance says of its alarms. It reports whether one was set that is looked for later, at or after
// the time that is returned.
func (a *agenda) committed(id instance.ID, edits []instance.AlarmEdit, gen int64, now time.Time) (first time.Time, later bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range edits {
		at := instance.When(e.At)
		switch {
		case a.closed:
		case !e.Clear && !at.After(now) && !at.After(a.passed):
			a.behind = !a.take(instance.Due{ID: id, Alarm: instance.Alarm{Name: e.Name, At: at, Gen: gen, Data: e.Data}}) || a.behind
			continue
		case !e.Clear && !at.After(a.passed): // the clock was set back
			a.behind = true
		}
		if was := a.known[dueKey{id, e.Name}]; was != nil && (!e.Clear || e.Gen == 0) {
			was.next = nil
		}
		if !e.Clear && (!later || at.Before(first)) {
			first, later = at, true
		}
	}
	return first, later
}
