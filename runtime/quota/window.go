package quota

import "time"

// slots is how many parts a window's span has. A refusal may last up to one part longer than it must.
const slots = 64

// window counts what happened within the last span, and up to one of its parts before: no span of time ever has more than were
// let in while the count was below a bound. It has a fixed size. Times are those of a clock that never goes back; an earlier
// one counts as the latest.
type window struct {
	span  time.Duration
	total int64
	last  int64 // number of the newest part
	parts [slots + 1]int64
}

func (w *window) part() time.Duration { return w.span / slots }

// move forgets what is older than the window.
func (w *window) move(at time.Duration) {
	now := int64(at / w.part())
	if now-w.last > slots {
		w.total, w.parts, w.last = 0, [slots + 1]int64{}, now
		return
	}
	for w.last < now {
		w.last++
		p := &w.parts[w.last%(slots+1)]
		w.total -= *p
		*p = 0
	}
}

func (w *window) count(at time.Duration) int64 {
	w.move(at)
	return w.total
}

func (w *window) add(at time.Duration) {
	w.move(at)
	w.total++
	w.parts[w.last%(slots+1)]++
}

// back takes back one that was added at the present part or a little before.
func (w *window) back() {
	for i := int64(0); i <= slots; i++ {
		if p := &w.parts[(w.last-i+slots+1)%(slots+1)]; *p > 0 {
			*p--
			w.total--
			return
		}
	}
}

// wait returns after how long the count will be below n.
func (w *window) wait(at time.Duration, n int64) time.Duration {
	left := w.total
	for i := w.last - slots; i <= w.last; i++ {
		if i < 0 {
			continue
		}
		if left -= w.parts[i%(slots+1)]; left < n {
			return time.Duration(i+slots+1)*w.part() - max(at, time.Duration(w.last)*w.part())
		}
	}
	return w.span
}
