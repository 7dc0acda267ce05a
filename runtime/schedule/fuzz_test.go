package schedule

import (
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// FuzzParse reads what an agent may say of when it is due. What is taken goes forward, and passes over what lies behind.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"", "30 9 * * 1-5", "*/15 0 8 * * 1", "@daily", "@hourly", "0 0 31 2 *", "0 2 29 2 *", "30 2 * 3 0", "* * * * *", "0-59/7 1,2 L * ?", "0 0 1 1 7#1", "TZ=UTC * * * * *", "@every 1s",
	} {
		f.Add(int64(time.Minute), line, "Europe/Berlin", int64(1_743_296_400))
		f.Add(int64(0), line, "", int64(0))
	}
	f.Add(int64(time.Second), "", "../etc/passwd", int64(-62_000_000_000))
	f.Add(int64(time.Hour), "59 23 * * *", "Pacific/Apia", int64(1_325_239_000))
	f.Fuzz(func(t *testing.T, every int64, line, zone string, from int64) {
		s, err := Parse(time.Duration(every), line, zone)
		if err != nil {
			if agent.KindOf(err) != agent.Invalid {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		at := time.Unix(from%200_000_000_000, 0).UTC() // some six thousand years around 1970
		due := at
		for range 3 {
			next, err := s.Next(due)
			if err != nil {
				if agent.KindOf(err) != agent.Invalid {
					t.Fatalf("%q in %q after %v: %v", line, zone, due, err)
				}
				return
			}
			if !next.After(due) {
				t.Fatalf("%q in %q: after %v comes %v", line, zone, due, next)
			}
			due = next
		}
		now := at.Add(100 * time.Hour)
		if next, missed, err := s.After(at, now, now.Add(time.Hour), false, false); err == nil && (!next.After(now.Add(time.Hour)) || missed < 0 || missed > maxMissed) {
			t.Fatalf("%q in %q: what follows %v is %v, past %v and %d missed", line, zone, at, next, now, missed)
		}
	})
}
