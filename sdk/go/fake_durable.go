//go:build !wasip1

package skep

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
)

// fakeInstance is what an instance keeps. Its maps are replaced and never changed, so that a copy of it is a moment to go back to.
type fakeInstance struct {
	storage fakeKV
	shared  abi.Shared
	alarms  map[string]fakeAlarm
	sockets map[string]abi.Socket
}

type fakeAlarm struct {
	abi.Alarm
	retry Retry
	gen   int // another one each time that it is set
}

// undo remembers what the instance has and has sent, and returns what goes back to it.
func (f *Fake) undo() func() {
	instance, messages, runs, frames, closed := f.instance, len(f.Messages), len(f.Runs), len(f.Frames), len(f.Closed)
	return func() {
		f.instance, f.Messages, f.Runs = instance, f.Messages[:messages], f.Runs[:runs]
		f.Frames, f.Closed = f.Frames[:frames], f.Closed[:closed]
	}
}

// Deliver sends an event to the run: it is there for the next WaitForEvent of that type. data is any value with a JSON form.
func (f *Fake) Deliver(kind string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("skep: the event %q has no JSON form: %v", kind, err))
	}
	if f.events == nil {
		f.events = map[string][]abi.Raw{}
	}
	f.events[kind] = append(f.events[kind], b)
}

// Connect opens a connection, or changes one of the same id. It calls no handler.
func (f *Fake) Connect(s Socket) {
	open := abi.Socket{ID: s.ID, Tags: s.Tags, URL: s.URL, Header: s.Header, Attachment: s.attachment}
	f.instance.sockets = with(f.instance.sockets, s.ID, open)
}

// Alarms lists the alarms of the instance in the order of their names.
func (f *Fake) Alarms() []Alarm {
	var list []Alarm
	for _, name := range slices.Sorted(maps.Keys(f.instance.alarms)) {
		list = append(list, alarmOf(f.instance.alarms[name].Alarm))
	}
	return list
}

// Fire moves time to when an alarm is due, if that is later, and calls function as its method. An alarm that worked is gone, or due
// again when it has an interval; one that failed is due again later, until its attempts are used up and it is Dead.
func (f *Fake) Fire(name string, function func() int32) error {
	a, ok := f.instance.alarms[name]
	if !ok {
		return fmt.Errorf("there is no alarm %q, but %v", name, slices.Sorted(maps.Keys(f.instance.alarms)))
	}
	if due := time.UnixMilli(a.At).UTC(); due.After(f.Now) {
		f.Now = due
	}
	err := f.Call(function, []byte(a.Payload), nil)
	now, there := f.instance.alarms[name]
	switch r := a.retry.or(Retry{Attempts: 6, Delay: 2 * time.Second, MaxDelay: 5 * time.Minute}); {
	case !there || now.gen != a.gen: // the call has cancelled it or set it again
		return err
	case err != nil:
		a.Attempt++
		a.Error, a.Dead = err.Error(), a.Attempt >= r.Attempts
		a.At = f.Now.Add(r.before(a.Attempt + 1)).UnixMilli()
	case a.Every > 0:
		a.Attempt, a.Error, a.At = 0, "", a.At+a.Every
	case a.Cron == "":
		f.instance.alarms = without(f.instance.alarms, name)
		return nil
	}
	f.instance.alarms = with(f.instance.alarms, name, a)
	return err
}

func with[V any](m map[string]V, key string, v V) map[string]V {
	next := maps.Clone(m)
	if next == nil {
		next = map[string]V{}
	}
	next[key] = v
	return next
}

func without[V any](m map[string]V, key string) map[string]V {
	next := maps.Clone(m)
	delete(next, key)
	return next
}

// durable answers the calls of durable code.
func (f *Fake) durable(name string, in []byte) (abi.Status, []byte) {
	i := &f.instance
	switch name {
	case abi.CallSelf:
		return answerOf(abi.Self(f.Self), nil)
	case abi.CallStorageGet, abi.CallStorageList, abi.CallStorageBatch:
		return i.storage.answer(name, in)
	case abi.CallStorageSQL:
		return answerOf(called(in, f.sql))
	case abi.CallSharedGet:
		return answerOf(i.shared, nil)
	case abi.CallSharedSet:
		return answerOf(called(in, i.setShared))
	case abi.CallAlarmSet:
		return answerOf(called(in, f.setAlarm))
	case abi.CallAlarmList:
		return answerOf(called(in, i.listAlarms))
	case abi.CallAlarmCancel:
		return answerOf(called(in, func(c abi.AlarmCancel) (abi.AlarmCancelled, error) {
			_, there := i.alarms[c.Name]
			i.alarms = without(i.alarms, c.Name)
			return abi.AlarmCancelled{Cancelled: there}, nil
		}))
	case abi.CallSleep:
		return answerOf(called(in, f.sleep))
	case abi.CallWait:
		return answerOf(called(in, f.wait))
	case abi.CallStart:
		return answerOf(called(in, func(s abi.Start) (abi.Started, error) {
			f.Runs = append(f.Runs, s)
			id := fmt.Sprintf("run-%d", len(f.Runs))
			return abi.Started{Run: id, Session: "session-of-" + id}, nil
		}))
	case abi.CallResult:
		return answerOf(called(in, f.runResult))
	case abi.CallStepBegin, abi.CallChildDelete, abi.CallTurnLeave, abi.CallTurnEnter:
		return abi.OK, nil
	case abi.CallStepEnd:
		return answerOf(called(in, record(&f.Steps)))
	case abi.CallSocketSend:
		return answerOf(called(in, record(&f.Frames)))
	case abi.CallSocketClose:
		return answerOf(called(in, func(c abi.SocketClose) (struct{}, error) {
			i.sockets = without(i.sockets, c.ID)
			f.Closed = append(f.Closed, c)
			return struct{}{}, nil
		}))
	case abi.CallSocketAttach:
		return answerOf(called(in, i.attach))
	case abi.CallSocketList:
		return answerOf(called(in, i.listSockets))
	}
	return refuse("invalid", "the fake host has no call "+name)
}

func record[T any](list *[]T) func(T) (struct{}, error) {
	return func(v T) (struct{}, error) {
		*list = append(*list, v)
		return struct{}{}, nil
	}
}

func (i *fakeInstance) setShared(s abi.SharedSet) (abi.Shared, error) {
	if s.If != nil && *s.If != i.shared.Version {
		why := fmt.Sprintf("the shared state has version %d, not %d", i.shared.Version, *s.If)
		return abi.Shared{}, &CallError{Kind: "conflict", Message: why}
	}
	i.shared = abi.Shared{State: s.State, Version: i.shared.Version + 1}
	return abi.Shared{Version: i.shared.Version}, nil
}

func (f *Fake) setAlarm(s abi.AlarmSet) (abi.Alarm, error) {
	kinds := 0
	for _, given := range []bool{s.At != 0, s.Delay != 0, s.Every != 0, s.Cron != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return abi.Alarm{}, &CallError{Kind: "invalid", Message: "an alarm needs one of at, delay, every and cron"}
	}
	a := abi.Alarm{Name: s.Name, Method: s.Method, Payload: s.Payload, At: s.At, Every: s.Every, Cron: s.Cron, Zone: s.Zone}
	if a.Method == "" {
		a.Method = "onAlarm"
	}
	if a.Name == "" {
		a.Name = fmt.Sprintf("%s %d %d %d %s %s", a.Method, s.At, s.Delay, s.Every, s.Cron, s.Payload)
	}
	if s.At == 0 && s.Cron == "" { // the fake keeps no calendar: an alarm of a cron line is due when it is fired
		a.At = f.Now.UnixMilli() + s.Delay + s.Every
	}
	old, there := f.instance.alarms[a.Name]
	if there && s.Keep {
		return old.Alarm, nil
	}
	set := fakeAlarm{Alarm: a, gen: old.gen + 1}
	if r := s.Retry; r != nil {
		const ms = time.Millisecond
		set.retry = Retry{Attempts: r.Attempts, Delay: time.Duration(r.Delay) * ms, MaxDelay: time.Duration(r.MaxDelay) * ms}
	}
	f.instance.alarms = with(f.instance.alarms, a.Name, set)
	return a, nil
}

func (i *fakeInstance) listAlarms(l abi.AlarmList) (out abi.Alarms, err error) {
	for _, name := range slices.Sorted(maps.Keys(i.alarms)) {
		if name > l.After {
			out.Alarms = append(out.Alarms, i.alarms[name].Alarm)
		}
	}
	return out, nil
}

var errNoRun = &CallError{Kind: "invalid", Message: "only a run can wait; in a test, give Fake.Self a Run"}

func (f *Fake) sleep(s abi.Sleep) (struct{}, error) {
	if f.Self.Run == "" {
		return struct{}{}, errNoRun
	}
	until := f.Now.Add(time.Duration(s.For) * time.Millisecond)
	if s.Until != 0 {
		until = time.UnixMilli(s.Until).UTC()
	}
	if until.After(f.Now) {
		f.Now = until
	}
	return struct{}{}, nil
}

func (f *Fake) wait(w abi.Wait) (abi.Waited, error) {
	there := f.events[w.Type]
	switch {
	case f.Self.Run == "":
		return abi.Waited{}, errNoRun
	case len(there) > 0:
		f.events[w.Type] = there[1:]
		return abi.Waited{Data: there[0]}, nil
	case w.Timeout == 0:
		return abi.Waited{}, &CallError{Kind: "invalid", Message: fmt.Sprintf("the run waits for ever: the test delivers no event %q", w.Type)}
	}
	f.Now = f.Now.Add(time.Duration(w.Timeout) * time.Millisecond)
	return abi.Waited{TimedOut: true}, nil
}

func (f *Fake) runResult(r abi.Result) (abi.AgentResult, error) {
	if f.Self.Run == "" {
		return abi.AgentResult{}, errNoRun
	}
	for i, s := range f.Runs {
		if r.Run != fmt.Sprintf("run-%d", i+1) {
			continue
		}
		if s.Agent == "" || s.Agent == f.Self.Agent && s.Key == "" {
			s.Agent, s.Key = f.Self.Agent, f.Self.Key
		}
		return f.result(s)
	}
	return abi.AgentResult{}, &CallError{Kind: "not_found", Message: "there is no run " + r.Run}
}

func (i *fakeInstance) attach(a abi.SocketAttach) (struct{}, error) {
	s, ok := i.sockets[a.ID]
	if !ok {
		return struct{}{}, &CallError{Kind: "not_found", Message: "there is no connection " + a.ID}
	}
	if a.Attachment != nil {
		s.Attachment = a.Attachment
	}
	if a.Tags != nil {
		s.Tags = *a.Tags
	}
	i.sockets = with(i.sockets, a.ID, s)
	return struct{}{}, nil
}

func (i *fakeInstance) listSockets(l abi.SocketList) (out abi.Sockets, err error) {
	for _, id := range slices.Sorted(maps.Keys(i.sockets)) {
		if s := i.sockets[id]; l.Tag == "" || slices.Contains(s.Tags, l.Tag) {
			out.Sockets = append(out.Sockets, s)
		}
	}
	return out, nil
}

func (f *Fake) sql(in abi.SQL) (out abi.SQLRows, err error) {
	if f.Query == nil {
		return out, &CallError{Kind: "invalid", Message: "the fake host has no database; in a test, set Fake.Query"}
	}
	var params []any
	for _, p := range in.Params {
		params = append(params, plainOf(p))
	}
	columns, rows, err := f.Query(in.Query, params)
	if err != nil {
		return out, &CallError{Kind: "invalid", Message: err.Error()}
	}
	out.Columns, out.Rows = columns, make([][]abi.SQLValue, len(rows))
	for r, row := range rows {
		for _, v := range row {
			value, wrong := sqlValue(v)
			err = errors.Join(err, wrong)
			out.Rows[r] = append(out.Rows[r], value)
		}
	}
	return out, err
}
