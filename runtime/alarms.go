package runtime

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/schedule"
	"github.com/skep-dev/skep/store/instance"
)

// Alarms of an instance have names in three families, so that one cannot be taken for another.
const (
	authorAlarm = "a/" // set by the code
	deadAlarm   = "d/" // one of the code's that failed for the last time; it is never due
	runAlarm    = "r/" // a run that waits
)

const (
	maxAlarms       = 10_000 // of one instance
	maxAlarmName    = instance.MaxAlarmName - len(authorAlarm)
	maxAlarmPayload = 64 << 10
	maxAlarmError   = 1 << 10
	maxAlarmWait    = 100 * 365 * 24 * time.Hour // a delay, or an interval
	maxRetryWait    = 30 * 24 * time.Hour

	defaultAttempts, maxAttempts = 6, 100
	defaultRetry                 = 2 * time.Second
	defaultRetryMax              = 5 * time.Minute
	postponed                    = 5 * time.Second // an alarm that could not be tried, for a reason that is not its code's
)

// never is when dead letters are due.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// alarmData is what is kept with an alarm of the code's.
type alarmData struct {
	Method  string          `json:"method"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Due     time.Time       `json:"due"` // when it was to be called first, before retries
	Every   time.Duration   `json:"every,omitempty"`
	Cron    string          `json:"cron,omitempty"`
	Zone    string          `json:"zone,omitempty"`
	Overlap string          `json:"overlap,omitempty"`
	Missed  string          `json:"missed,omitempty"`
	Retry   retry           `json:"retry"`
	Attempt int             `json:"attempt,omitempty"` // that failed, or that the process died in
	Error   string          `json:"error,omitempty"`
}

type retry struct {
	Attempts int           `json:"attempts"`
	Delay    time.Duration `json:"delay"`
	MaxDelay time.Duration `json:"max_delay"`
}

// after returns how long to wait after so many attempts.
func (r retry) after(attempts int) time.Duration {
	d := r.Delay
	for range attempts - 1 {
		if d *= 2; d >= r.MaxDelay {
			return r.MaxDelay
		}
	}
	return min(d, r.MaxDelay)
}

func (d *alarmData) schedule() (schedule.Schedule, error) {
	return schedule.Parse(d.Every, d.Cron, d.Zone)
}

func (d *alarmData) repeats() bool { return d.Every > 0 || d.Cron != "" }

func (d *alarmData) encode() []byte { return encode(d) }

func decodeAlarm(a instance.Alarm) (d alarmData, err error) {
	if err = json.Unmarshal(a.Data, &d); err != nil {
		err = agent.Wrap(agent.Internal, err, "alarm "+quoted(a.Name)+" cannot be read")
	}
	return d, err
}

// wireAlarm is what code sees of an alarm.
func wireAlarm(a instance.Alarm) (abi.Alarm, error) {
	d, err := decodeAlarm(a)
	out := abi.Alarm{
		Name: a.Name[len(authorAlarm):], Method: d.Method, Payload: abi.Raw(d.Payload), At: a.At.UnixMilli(),
		Every: d.Every.Milliseconds(), Cron: d.Cron, Zone: d.Zone, Attempt: d.Attempt, Error: d.Error,
	}
	if strings.HasPrefix(a.Name, deadAlarm) {
		out.Dead, out.At = true, d.Due.UnixMilli()
	}
	return out, err
}

// setAlarm sets an alarm of the code's.
func (r *Runtime) setAlarm(ctx context.Context, t *durable.Turn, p *agent.Plugin, in abi.AlarmSet, now time.Time) (abi.Alarm, error) {
	d := alarmData{
		Method: in.Method, Payload: json.RawMessage(in.Payload), Every: time.Duration(in.Every) * time.Millisecond,
		Cron: in.Cron, Zone: in.Zone, Overlap: cmp.Or(in.Overlap, "skip"), Missed: cmp.Or(in.Missed, "once"),
		Retry: retry{defaultAttempts, defaultRetry, defaultRetryMax},
	}
	if d.Method == "" {
		d.Method, _ = handlerOf(p, onAlarm)
	}
	if err := d.check(p, in); err != nil {
		return abi.Alarm{}, err
	}
	at, err := d.first(in, now)
	if err != nil {
		return abi.Alarm{}, err
	}
	d.Due = at
	name := authorAlarm + in.Name
	if in.Name == "" {
		name += d.madeUpName(at)
	}
	old, there, err := t.Alarm(ctx, name)
	if err != nil {
		return abi.Alarm{}, err
	}
	if there && (in.Keep || in.Name == "" && d.repeats()) {
		return wireAlarm(old)
	}
	if n := t.Info().Alarms; !there && n >= maxAlarms {
		return abi.Alarm{}, agent.Exceeded(agent.LimitState, "the instance has %d alarms already, the most there may be", n)
	}
	set := instance.Alarm{Name: name, At: at, Data: d.encode()}
	if err := t.SetAlarm(ctx, instance.AlarmEdit{Alarm: set}); err != nil {
		return abi.Alarm{}, err
	}
	return wireAlarm(set)
}

// alarmMethod returns the export that an alarm calls by the name of a method, and refuses those that no alarm calls.
func alarmMethod(p *agent.Plugin, method string) (string, error) {
	own, _ := handlerOf(p, onAlarm)
	name, there := handlerOf(p, method)
	if there && (name == own || !isReserved(p, name)) {
		return name, nil
	}
	return "", &agent.Error{
		Kind: agent.Invalid, Msg: "an alarm calls a method, and the code has no " + quoted(method), Hint: "it has: " + strings.Join(callable(p), ", "),
	}
}

// check refuses what no alarm can be.
func (d *alarmData) check(p *agent.Plugin, in abi.AlarmSet) error {
	if _, err := alarmMethod(p, d.Method); err != nil {
		return err
	}
	kinds := 0
	for _, given := range []bool{in.At != 0, in.Delay != 0, in.Every != 0, in.Cron != ""} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return agent.Errorf(agent.Invalid, "an alarm is set by one of: a time, a delay, an interval, a cron line")
	case len(in.Name) > maxAlarmName:
		return agent.Errorf(agent.Invalid, "the alarm's name has %d bytes, more than %d", len(in.Name), maxAlarmName)
	case len(in.Payload) > maxAlarmPayload:
		return agent.Errorf(agent.Invalid, "the alarm's payload has %d bytes, more than %d: keep what is larger in storage", len(in.Payload), maxAlarmPayload)
	case in.At < 0 || in.Delay < 0 || in.Every < 0:
		return agent.Errorf(agent.Invalid, "an alarm's time, delay or interval is not below 0")
	case in.At >= never.UnixMilli():
		return agent.Errorf(agent.Invalid, "an alarm's time is before the last day of the year 9999")
	case max(in.Delay, in.Every) > maxAlarmWait.Milliseconds():
		return agent.Errorf(agent.Invalid, "an alarm's delay or interval is not over 100 years")
	case d.Overlap != "skip" && d.Overlap != "queue":
		return agent.Errorf(agent.Invalid, `an alarm's overlap is "skip" or "queue", not %.40q`, d.Overlap)
	case d.Missed != "once" && d.Missed != "skip" && d.Missed != "all":
		return agent.Errorf(agent.Invalid, `an alarm's missed is "once", "skip" or "all", not %.40q`, d.Missed)
	}
	if a := in.Retry; a != nil {
		if a.Attempts < 0 || a.Attempts > maxAttempts || min(a.Delay, a.MaxDelay) < 0 || max(a.Delay, a.MaxDelay) > maxRetryWait.Milliseconds() {
			return agent.Errorf(agent.Invalid, "an alarm is tried 1 to %d times, with delays from 0 up to 30 days", maxAttempts)
		}
		d.Retry.Attempts = cmp.Or(a.Attempts, d.Retry.Attempts)
		d.Retry.Delay = cmp.Or(time.Duration(a.Delay)*time.Millisecond, d.Retry.Delay)
		d.Retry.MaxDelay = max(cmp.Or(time.Duration(a.MaxDelay)*time.Millisecond, d.Retry.MaxDelay), d.Retry.Delay)
	}
	return nil
}

// first returns when the alarm is due first. One without a time is due now.
func (d *alarmData) first(in abi.AlarmSet, now time.Time) (time.Time, error) {
	switch {
	case d.repeats():
		s, err := d.schedule()
		if err != nil {
			return time.Time{}, err
		}
		return s.Next(now)
	case in.At != 0:
		return time.UnixMilli(in.At).UTC(), nil
	}
	return instance.When(now.Add(time.Duration(in.Delay) * time.Millisecond)), nil
}

// madeUpName names an alarm by what it is, so that the same alarm set twice is one. Of one that does not repeat that includes its time.
func (d *alarmData) madeUpName(at time.Time) string {
	what := *d
	what.Due, what.Retry = at, retry{}
	if what.repeats() {
		what.Due = time.Time{}
	}
	sum := sha256.Sum256(what.encode())
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
}

// alarm does what an alarm is for. It is called until the alarm was cleared or moved.
func (r *Runtime) alarm(ctx context.Context, due instance.Due) error {
	if run, ok := strings.CutPrefix(due.Name, runAlarm); ok {
		return r.wakeRun(ctx, due, agent.RunID(run))
	}
	rec, err := r.agentOf(ctx, due.ID)
	if agent.KindOf(err) == agent.NotFound {
		return nil // the agent was deleted, and its instances are being removed
	}
	if err != nil {
		return err
	}
	ctx, span := r.opts.Tracer.Start(ctx, "alarm.due")
	defer span.End()
	t, err := r.keeper.Enter(ctx, due.ID, durable.Entry{Exists: true})
	if errors.Is(err, instance.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Abandon()
	now := time.Now()
	a, there, err := t.Alarm(ctx, due.Name)
	if err != nil || !there || a.Gen != due.Gen || a.At.After(now) { // it was cleared or moved meanwhile
		return err
	}
	d, err := decodeAlarm(a)
	if err != nil {
		return err
	}
	f := firing{r: r, t: t, rec: rec, alarm: a, data: d, began: now}
	if err := f.fire(ctx); err != nil {
		return err
	}
	return r.leave(ctx, t)
}

// firing is one attempt to do what an alarm is for.
type firing struct {
	r      *Runtime
	t      *durable.Turn
	rec    record
	alarm  instance.Alarm
	data   alarmData
	began  time.Time
	missed int // times that passed, and that this attempt stands for
}

func (f *firing) fire(ctx context.Context) error {
	if f.data.Missed == "skip" && f.data.repeats() && f.data.Attempt == 0 && f.began.Sub(f.alarm.At) > lateAfter {
		return f.done(ctx, false)
	}
	if !f.r.store.WasClosed() && !f.alarm.At.After(f.r.began) {
		// The process before this one died, maybe of this: count the attempt before it is made.
		if f.data.Attempt >= f.data.Retry.Attempts {
			return f.failed(ctx, agent.Errorf(agent.Failed, "the server ended each time that the alarm was under way"))
		}
		if err := f.countAttempt(ctx); err != nil {
			return err
		}
	}
	method, err := alarmMethod(f.rec.plugin, f.data.Method) // the code may be another by now
	if err == nil {
		_, err = f.r.inTurn(ctx, f.t, f.r.work(f.rec, agent.UseAlarm, method, agent.JSON(f.data.Payload)))
	}
	if err == nil {
		return f.done(ctx, true)
	}
	if ctx.Err() != nil {
		return err
	}
	f.t.Undo()
	if blameless(err) { // it is tried again without having been tried
		e := agent.AsError(err)
		f.data.Error = phrase.Clip(e.Msg, maxAlarmError)
		return f.set(ctx, f.began.Add(max(e.After, postponed)))
	}
	_ = f.r.ended(ctx, f.rec.agent, err)
	return f.failed(ctx, err)
}

// countAttempt makes durable that an attempt is made. It is taken back when the attempt is known to have ended.
func (f *firing) countAttempt(ctx context.Context) (err error) {
	f.data.Attempt++
	if err := f.set(ctx, f.alarm.At); err != nil {
		return err
	}
	if err := f.t.Commit(ctx); err != nil {
		return err
	}
	f.data.Attempt--
	f.alarm, _, err = f.t.Alarm(ctx, f.alarm.Name) // it has another generation now
	return err
}

// lateAfter is how late an alarm may be that counts as on time.
const lateAfter = time.Minute

// set moves the alarm to a time.
func (f *firing) set(ctx context.Context, at time.Time) error {
	return f.t.SetAlarm(ctx, instance.AlarmEdit{Alarm: instance.Alarm{Name: f.alarm.Name, At: at, Data: f.data.encode()}})
}

// failed has the alarm tried again later, or makes it a dead letter.
func (f *firing) failed(ctx context.Context, err error) error {
	f.data.Attempt++
	f.data.Error = phrase.Clip(agent.AsError(err).Msg, maxAlarmError)
	if f.data.Attempt < f.data.Retry.Attempts {
		return f.set(ctx, time.Now().Add(f.data.Retry.after(f.data.Attempt)))
	}
	dead := instance.Alarm{Name: deadAlarm + f.alarm.Name[len(authorAlarm):], At: never, Data: f.data.encode()}
	if err := f.makeRoom(ctx); err != nil {
		return err
	}
	if err := f.t.SetAlarm(ctx, instance.AlarmEdit{Alarm: dead}); err != nil {
		return err
	}
	if err := f.tell(ctx, agent.EventAlarmFailed); err != nil {
		return err
	}
	f.t.Then(func() { f.r.stats.deadAlarms.Add(1) })
	return f.next(ctx)
}

// maxDead is how many dead letters an instance keeps, so that they never stand in the way of its alarms.
const maxDead = 1000

// makeRoom drops the dead letter that was due first, when there are as many as are kept.
func (f *firing) makeRoom(ctx context.Context) error {
	list, err := f.t.Alarms(ctx, deadAlarm, maxDead)
	if err != nil || len(list) < maxDead || !strings.HasPrefix(list[maxDead-1].Name, deadAlarm) {
		return err
	}
	oldest, due := "", time.Time{}
	for _, a := range list {
		if d, err := decodeAlarm(a); err == nil && (oldest == "" || d.Due.Before(due)) {
			oldest, due = a.Name, d.Due
		}
	}
	return f.t.SetAlarm(ctx, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: oldest}})
}

// done tells that the alarm was dealt with, and sets the next time of one that repeats.
func (f *firing) done(ctx context.Context, called bool) error {
	if current, there, err := f.t.Alarm(ctx, f.alarm.Name); err != nil || !there || current.Gen != f.alarm.Gen {
		return err // its own code has cleared or moved it
	}
	if !called {
		return f.next(ctx)
	}
	if err := f.next(ctx); err != nil {
		return err
	}
	f.data.Attempt++
	return f.tell(ctx, agent.EventAlarmFired)
}

// next sets the next time of an alarm that repeats, and clears another.
func (f *firing) next(ctx context.Context) error {
	if !f.data.repeats() {
		return f.t.SetAlarm(ctx, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: f.alarm.Name}})
	}
	s, err := f.data.schedule()
	if err != nil {
		return err
	}
	at, missed, err := s.After(f.data.Due, f.began, time.Now(), f.data.Missed == "all", f.data.Overlap == "queue")
	if err != nil {
		return err
	}
	f.missed = missed
	next := f.data
	next.Due, next.Attempt, next.Error = at, 0, ""
	return f.t.SetAlarm(ctx, instance.AlarmEdit{Alarm: instance.Alarm{Name: f.alarm.Name, At: at, Data: next.encode()}})
}

func (f *firing) tell(ctx context.Context, kind agent.EventKind) error {
	return f.t.Append(ctx, instance.OwnLog(ownEvents), agent.Event{
		Kind: kind, Name: f.alarm.Name[len(authorAlarm):],
		Data: encode(agent.AlarmFired{Method: f.data.Method, Due: f.data.Due, Attempt: f.data.Attempt, Missed: f.missed, Error: f.data.Error}),
	})
}
