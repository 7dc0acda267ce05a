package limit

import (
	"maps"
	"math"
	"slices"
	"time"
)

const day = 24 * time.Hour

// steps is in how many parts a window below a day is counted.
const steps = 64

// amount is what limits count. None of it is below 0.
type amount struct{ requests, tokens, micro int64 }

func (a amount) plus(b amount) amount {
	return amount{add(a.requests, b.requests), add(a.tokens, b.tokens), add(a.micro, b.micro)}
}

func (a amount) minus(b amount) amount {
	return amount{max(a.requests-b.requests, 0), max(a.tokens-b.tokens, 0), max(a.micro-b.micro, 0)}
}

// add stays at the greatest: what claims to be too much must not come out small.
func add(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// counter counts the use of one app, agent, key or user.
type counter struct {
	parts map[int64]amount // by the number of the day, or of the part of a window
	held  amount           // with days: by calls under way
}

// daysOf returns how many days a window has, which is at least one day long.
func daysOf(window time.Duration) int64 { return int64((window + day - 1) / day) }

// days reports whether the limit counts by days.
func (r *rule) days() bool { return r.Window >= day }

// part returns the number of the part that now is in.
func (r *rule) part(now time.Time) int64 {
	if r.days() {
		return floor(now.Unix(), int64(day/time.Second))
	}
	return floor(now.UnixNano(), r.step())
}

// step is how long a part of a window below a day is, in nanoseconds.
func (r *rule) step() int64 { return max(int64(r.Window)/steps, 1) }

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// first returns the number of the oldest part that counts.
func (r *rule) first(now time.Time) int64 {
	if r.days() {
		return r.part(now) - daysOf(r.Window) + 1
	}
	return r.part(now) - steps
}

// used returns what counts now, and forgets what does not any more. Parts of a time to come are of a clock that was set back, and count.
func (r *rule) used(c *counter, now time.Time) amount {
	sum, first := c.held, r.first(now)
	for p, a := range c.parts {
		if p < first {
			delete(c.parts, p)
			continue
		}
		sum = sum.plus(a)
	}
	return sum
}

// after returns how long it takes until at most most is used, if nothing is added; 0 when that is not known, because calls under way hold it.
func (r *rule) after(c *counter, now time.Time, most int64, of func(amount) int64) time.Duration {
	left := of(r.used(c, now))
	for _, p := range slices.Sorted(maps.Keys(c.parts)) {
		if left -= of(c.parts[p]); left <= most {
			return r.leaves(p).Sub(now)
		}
	}
	return 0
}

// leaves returns when a part does not count any more.
func (r *rule) leaves(part int64) time.Time {
	if r.days() {
		return time.Unix((part+daysOf(r.Window))*int64(day/time.Second), 0)
	}
	return time.Unix(0, (part+steps+1)*r.step())
}

// take holds an amount.
func (r *rule) take(c *counter, part int64, a amount) {
	if r.days() {
		c.held = c.held.plus(a)
		return
	}
	c.parts[part] = c.parts[part].plus(a)
}

// settle puts what was used in the place of what was held.
func (r *rule) settle(c *counter, part int64, held, used amount, now time.Time) {
	if r.days() {
		c.held = c.held.minus(held)
		today := r.part(now)
		c.parts[today] = c.parts[today].plus(used)
		return
	}
	if was, counts := c.parts[part]; counts {
		c.parts[part] = was.minus(held).plus(used)
	}
}

// counter returns the counter of somebody, which may be new. Now and then it forgets those of whom nothing counts.
func (r *rule) counter(who string, now time.Time) *counter {
	c := r.whose[who]
	if c != nil {
		return c
	}
	if n := len(r.whose); n > 2*r.swept+10_000 {
		for who, c := range r.whose {
			if r.used(c, now) == (amount{}) {
				delete(r.whose, who)
			}
		}
		r.swept = len(r.whose)
	}
	c = &counter{parts: map[int64]amount{}}
	r.whose[who] = c
	return c
}
