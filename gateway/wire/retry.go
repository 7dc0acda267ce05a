package wire

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter reads when trying again makes sense: Retry-After in seconds or as a date, retry-after-ms, or the reset of a rate limit that has nothing left.
// It is 0 when nothing is said, and never negative. It is not bounded: whoever waits bounds it.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	if s := strings.TrimSpace(h.Get("Retry-After")); s != "" {
		if sec, err := strconv.ParseFloat(s, 64); err == nil {
			if sec >= 0 && sec < 1e9 {
				return time.Duration(sec * float64(time.Second))
			}
			return 0
		}
		if at, err := http.ParseTime(s); err == nil {
			if date, err := http.ParseTime(h.Get("Date")); err == nil { // its own clock
				now = date
			}
			return max(at.Sub(now), 0)
		}
	}
	var after time.Duration
	for _, what := range []string{"Requests", "Tokens"} {
		if h.Get("X-Ratelimit-Remaining-"+what) != "0" {
			continue
		}
		if d, err := time.ParseDuration(h.Get("X-Ratelimit-Reset-" + what)); err == nil {
			after = max(after, d)
		}
	}
	return after
}

// Final reads x-should-retry: true means that trying again is useless, nil that nothing is said.
func Final(h http.Header) *bool {
	switch h.Get("X-Should-Retry") {
	case "true":
		return new(false)
	case "false":
		return new(true)
	}
	return nil
}

// PassedHeader returns those fields of a provider's answer that clients get: what they need to wait as they should.
func PassedHeader(h http.Header) http.Header {
	out := http.Header{}
	for k, v := range h {
		low := strings.ToLower(k)
		ok := low == "retry-after" || low == "retry-after-ms" || strings.HasPrefix(low, "x-ratelimit-") || strings.HasPrefix(low, "anthropic-ratelimit-")
		if ok && len(v) == 1 && len(v[0]) <= 200 && len(out) < 32 {
			out[k] = []string{v[0]}
		}
	}
	return out
}
