package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/schedule"
)

func parse(t *testing.T, every time.Duration, line, zone string) schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(every, line, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const form = "2006-01-02 15:04:05 MST"

// Clocks that are set forward skip nothing, and those that are set back repeat nothing but what comes every hour.
func TestClockChanges(t *testing.T) {
	const zone = "America/New_York"
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string
		from time.Time
		want []string
	}{
		{"30 2 * * *", time.Date(2026, 3, 7, 0, 0, 0, 0, loc), []string{"2026-03-07 02:30:00 EST", "2026-03-08 03:30:00 EDT", "2026-03-09 02:30:00 EDT"}},
		{"30 1 * * *", time.Date(2026, 10, 31, 0, 0, 0, 0, loc), []string{"2026-10-31 01:30:00 EDT", "2026-11-01 01:30:00 EDT", "2026-11-02 01:30:00 EST"}},
		{"15,45 1 * * *", time.Date(2026, 11, 1, 0, 0, 0, 0, loc), []string{"2026-11-01 01:15:00 EDT", "2026-11-01 01:45:00 EDT", "2026-11-02 01:15:00 EST"}},
		{"0 * * * *", time.Date(2026, 11, 1, 0, 30, 0, 0, loc), []string{"2026-11-01 01:00:00 EDT", "2026-11-01 01:00:00 EST", "2026-11-01 02:00:00 EST"}},
		{"@daily", time.Date(2026, 3, 7, 12, 0, 0, 0, loc), []string{"2026-03-08 00:00:00 EST", "2026-03-09 00:00:00 EDT"}},
		{"*/20 30 9 * * 1-5", time.Date(2026, 11, 27, 9, 30, 30, 0, loc), []string{"2026-11-27 09:30:40 EST", "2026-11-30 09:30:00 EST"}},
		{"0 0 29 2 *", time.Date(2026, 1, 1, 0, 0, 0, 0, loc), []string{"2028-02-29 00:00:00 EST"}},
	} {
		s, at := parse(t, 0, c.line, zone), c.from
		for _, want := range c.want {
			if at, err = s.Next(at); err != nil || at.In(loc).Format(form) != want {
				t.Errorf("%s: %s, %v; want %s", c.line, at.In(loc).Format(form), err, want)
			}
		}
	}
}

func TestAfter(t *testing.T) {
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return base.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name              string
		due, began, ended float64
		all, queue        bool
		want              float64
		missed            int
	}{
		{"on time", 10, 10, 10.1, false, false, 20, 0},
		{"three passed", 10, 45, 45.1, false, false, 50, 3},
		{"three passed and count", 10, 45, 45.1, true, false, 20, 0},
		{"too slow", 10, 10, 31, false, false, 40, 0},
		{"too slow and queued", 10, 10, 31, false, true, 20, 0},
		{"exactly then", 10, 10, 20, false, false, 30, 0},
		{"a year passed", 10, 31_536_005, 31_536_006, false, false, 31_536_010, 1000},
	} {
		for name, s := range map[string]schedule.Schedule{"every": parse(t, 10*time.Second, "", ""), "cron": parse(t, 0, "*/10 * * * * *", "")} {
			next, missed, err := s.After(at(c.due), at(c.began), at(c.ended), c.all, c.queue)
			if err != nil || !next.Equal(at(c.want)) || missed != c.missed {
				t.Errorf("%s, %s: %v and %d missed, %v; want %v and %d", c.name, name, next.Sub(base), missed, err, at(c.want).Sub(base), c.missed)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		every            time.Duration
		line, zone, want string
	}{
		{time.Second - 1, "", "", "too short"},
		{0, "61 * * * *", "", "61"},
		{0, "* * *", "", "fields"},
		{0, "TZ=Europe/Berlin 0 0 * * *", "", "field"},
		{0, "@every 1s", "", "field"},
		{0, "0 0 * * *", "Mars/Olympus", "no time zone"},
		{0, "0 0 * * *", "Local", "no time zone"},
		{0, strings.Repeat("0,", 200) + "0 0 * * *", "", "more than 256"},
	} {
		if _, err := schedule.Parse(c.every, c.line, c.zone); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %q %q: %v, want %q", c.every, c.line, c.zone, err, c.want)
		}
	}
	s := parse(t, 0, "0 0 31 2 *", "")
	if _, err := s.Next(time.Now()); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a time that never comes: %v", err)
	}
}
