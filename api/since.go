package api

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

func sinceTime(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, agent.Errorf(agent.Invalid, "query parameter %q must be a time such as 2026-01-31T08:00:00Z or a duration such as 24h, not %.80q", "since", s)
	}
	return t, nil
}

// firstSince returns the number of the first event of a log that is not before t: one past the end when there is none. Events
// are in the order of their times, but for those that were written at the same moment.
func (s *Server) firstSince(ctx context.Context, l store.Log, t time.Time) (int64, error) {
	low, last, err := s.st.Bounds(ctx, l)
	high := last + 1
	for err == nil && low < high {
		mid := low + (high-low)/2
		var one []agent.Event
		if one, err = s.st.Read(ctx, l, mid-1, 1); err != nil || len(one) == 0 {
			break
		}
		if one[0].Time.Before(t) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, err
}
