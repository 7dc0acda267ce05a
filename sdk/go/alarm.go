package skep

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/skep-dev/skep/abi"
)

// AlarmOptions says what is called when. Of At, Delay, Every and Cron one is set. Times are kept in milliseconds.
type AlarmOptions struct {
	// Name names the alarm among those of the instance. Setting one of the same name again replaces it. "" stands for a name made of
	// method, time and payload, so that what is set twice happens once.
	Name    string
	Method  string // that is called; the handler OnAlarm (or on_alarm, onAlarm) when empty
	Payload any    // the method's input, which travels as JSON; nil means none

	At    time.Time
	Delay time.Duration
	Every time.Duration // a second or more
	Cron  string        // five or six fields, or a word such as @daily
	Zone  string        // of Cron, by the IANA database; UTC when empty

	Overlap string // of Every and Cron, when the call before still runs: "skip" (the default) or "queue"
	Missed  string // of Every and Cron, for times that passed meanwhile: "once" (the default), "skip" or "all"
	Retry   Retry  // when the call fails; 6 attempts, from 2 s to 5 minutes after each other, unless given
	Keep    bool   // an alarm of the same name that is there stays as it is
}

// Retry says how often what failed is tried again, and after how long. Zero fields mean the defaults of alarms or of steps.
type Retry struct {
	Attempts int           // in all
	Delay    time.Duration // before the second; it is doubled with each attempt
	MaxDelay time.Duration
}

// Alarm is an alarm that is set, or that failed for the last time.
type Alarm struct {
	Name, Method string
	At           time.Time // when it is due next
	Every        time.Duration
	Cron, Zone   string
	Attempt      int    // attempts that failed
	Dead         bool   // the last one failed, too
	Error        string // of the latest attempt

	payload abi.Raw
}

// Decode decodes the alarm's payload into out.
func (a Alarm) Decode(out any) error {
	if a.payload == nil {
		return nil
	}
	if err := json.Unmarshal(a.payload, out); err != nil {
		return fmt.Errorf("alarm %q: payload: %w", a.Name, err)
	}
	return nil
}

// Schedule sets an alarm of the instance. It is set when the turn is committed, fires at least once, and is tried again when the call
// fails.
func Schedule(o AlarmOptions) (Alarm, error) {
	set := abi.AlarmSet{
		Name: o.Name, Method: o.Method, Delay: millis(o.Delay), Every: millis(o.Every), Cron: o.Cron, Zone: o.Zone,
		Overlap: o.Overlap, Missed: o.Missed, Keep: o.Keep,
	}
	if !o.At.IsZero() {
		set.At = unixMillis(o.At)
	}
	if o.Payload != nil {
		var err error
		if set.Payload, err = json.Marshal(o.Payload); err != nil {
			return Alarm{}, fmt.Errorf("alarm %q: payload: %w", o.Name, err)
		}
	}
	if o.Retry != (Retry{}) {
		set.Retry = &abi.AlarmRetry{Attempts: o.Retry.Attempts, Delay: millis(o.Retry.Delay), MaxDelay: millis(o.Retry.MaxDelay)}
	}
	var out abi.Alarm
	err := ask(abi.CallAlarmSet, set, &out)
	return alarmOf(out), err
}

// Alarms lists the alarms of the instance in the order of their names.
func Alarms() ([]Alarm, error) {
	var all []Alarm
	for list := (abi.AlarmList{Limit: 1000}); ; {
		var page abi.Alarms
		if err := ask(abi.CallAlarmList, list, &page); err != nil {
			return nil, err
		}
		for _, a := range page.Alarms {
			all = append(all, alarmOf(a))
		}
		if list.After = page.After; page.After == "" {
			return all, nil
		}
	}
}

// CancelAlarm takes an alarm back, and tells whether it was there.
func CancelAlarm(name string) (there bool, err error) {
	var out abi.AlarmCancelled
	err = ask(abi.CallAlarmCancel, abi.AlarmCancel{Name: name}, &out)
	return out.Cancelled, err
}

func alarmOf(a abi.Alarm) Alarm {
	return Alarm{
		Name: a.Name, Method: a.Method, At: time.UnixMilli(a.At).UTC(), Every: time.Duration(a.Every) * time.Millisecond,
		Cron: a.Cron, Zone: a.Zone, Attempt: a.Attempt, Dead: a.Dead, Error: a.Error, payload: a.Payload,
	}
}

// millis rounds up, so that nothing is early.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func unixMillis(t time.Time) int64 {
	return t.Add(time.Millisecond - 1).UnixMilli()
}
