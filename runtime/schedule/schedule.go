// Package schedule says when something that repeats is due: by an interval, or by a cron line in a time zone.
package schedule

import (
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"

	"github.com/skep-dev/skep/agent"
)

// MinEvery is the shortest interval.
const MinEvery = time.Second

// maxMissed is how many times that have passed are counted.
const maxMissed = 1000

// Schedule is a sequence of times.
type Schedule struct {
	every time.Duration
	cron  cron.Schedule
	fixed bool // the cron line names hours, so that the hour a clock repeats in autumn counts once
	zone  *time.Location
}

// A line has five fields, or six with the second first, or is a word such as @daily (crontab(5)).
var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse reads an interval or a cron line with its zone, of the IANA database; an empty one is UTC.
func Parse(every time.Duration, line, zone string) (Schedule, error) {
	if line == "" {
		if every < MinEvery {
			return Schedule{}, agent.Errorf(agent.Invalid, "an interval of %v is too short: %v is the shortest", every, MinEvery)
		}
		return Schedule{every: every}, nil
	}
	if strings.Contains(line, "=") || strings.HasPrefix(strings.TrimSpace(line), "@every") {
		return Schedule{}, agent.Errorf(agent.Invalid, "the cron line %.80q has a zone or an interval in it, which are fields of their own", line)
	}
	if len(line) > 256 {
		return Schedule{}, agent.Errorf(agent.Invalid, "the cron line has %d bytes, more than 256", len(line))
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return Schedule{}, &agent.Error{Kind: agent.Invalid, Msg: "there is no time zone " + zone, Hint: `zones are named as in "Europe/Berlin"`}
	}
	s, err := parser.Parse(line)
	if err != nil {
		return Schedule{}, &agent.Error{
			Kind: agent.Invalid, Msg: "the cron line \"" + line + "\" is not valid: " + err.Error(), Hint: "minute hour day month weekday, such as 30 9 * * 1-5",
		}
	}
	return Schedule{cron: s, zone: loc, fixed: fixedHours(line)}, nil
}

// fixedHours reports whether the line's hours are named one by one.
func fixedHours(line string) bool {
	f := strings.Fields(line)
	if len(f) < 5 {
		return strings.HasPrefix(line, "@") && line != "@hourly"
	}
	return !strings.ContainsAny(f[len(f)-4], "*/-?")
}

// Next returns the first time after t, to the millisecond. A cron line that never comes again is an Invalid error.
func (s Schedule) Next(t time.Time) (time.Time, error) {
	if s.cron == nil {
		return t.Add(s.every).UTC(), nil
	}
	local := t.In(s.zone)
	next := s.cron.Next(local)
	for s.fixed && !next.IsZero() && !shown(next).After(shown(local)) { // the hour that comes twice as clocks are set back
		next = s.cron.Next(next)
	}
	if next.IsZero() {
		return time.Time{}, agent.Errorf(agent.Invalid, "the cron line names a time that never comes")
	}
	return next.UTC(), nil
}

// shown returns what the clock on the wall shows, as a time that can be compared.
func shown(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// After returns the time that follows due, which was dealt with from began to ended, and how many it passes over because they lie before
// began. Those are kept when all is set; those that lie between began and ended are kept when queue is.
func (s Schedule) After(due, began, ended time.Time, all, queue bool) (next time.Time, missed int, err error) {
	if next, err = s.Next(due); err != nil {
		return next, 0, err
	}
	if !all {
		for !next.After(began) && missed < maxMissed {
			missed++
			if next, err = s.Next(next); err != nil {
				return next, missed, err
			}
		}
		if !next.After(began) {
			if next, err = s.jump(due, began); err != nil {
				return next, missed, err
			}
		}
	}
	if !queue && next.After(began) && !next.After(ended) {
		next, err = s.jump(due, ended)
	}
	return next, missed, err
}

// jump returns the first time of the sequence from due that is after t.
func (s Schedule) jump(due, t time.Time) (time.Time, error) {
	if s.cron != nil {
		return s.Next(t)
	}
	return due.Add((t.Sub(due)/s.every + 1) * s.every), nil
}
