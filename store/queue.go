package store

import (
	"slices"

	"github.com/skep-dev/skep/agent"
)

// What one app may have in a batch. Whoever comes while a batch is written waits for it, so no batch may be long because of one app.
const (
	appCost    = 256 << 10 // after which the app's others wait for the next batch
	txCost     = 1 << 10   // of a transaction
	changeCost = 256       // of a record, beside its bytes
)

// cost is about how long a transaction makes a batch, in bytes that are written.
func (t *tx) cost() int { return txCost + changeCost*len(t.order) + t.bytes }

// queue is who waits to commit: a line for each app, of which each goes on by one before any goes on by another. The "app" of what
// the host does for itself is "".
type queue struct {
	lines map[agent.App]*line
	turn  []*line // those that are not empty, whose turn it is first
	n     int
}

type line struct {
	app     agent.App
	waiting []*request
}

// line returns an app's line, which has somebody in it from now on.
func (q *queue) line(app agent.App) *line {
	l := q.lines[app]
	if l == nil {
		l = &line{app: app}
		if q.lines == nil {
			q.lines = map[agent.App]*line{}
		}
		q.lines[app] = l
		q.turn = append(q.turn, l)
	}
	return l
}

func (q *queue) add(r *request) {
	l := q.line(r.app)
	l.waiting = append(l.waiting, r)
	q.n++
}

// next takes the first of the line whose turn it is, and then it is that line's turn last.
func (q *queue) next() *request {
	l := q.turn[0]
	q.turn = q.turn[1:]
	r := l.waiting[0]
	l.waiting = l.waiting[1:]
	q.n--
	if len(l.waiting) > 0 {
		q.turn = append(q.turn, l)
	} else {
		delete(q.lines, l.app)
	}
	return r
}

// take takes up to most requests, but none of apps that sit out.
func (q *queue) take(most int, sitsOut func(agent.App) bool) (rs []*request) {
	for had := -1; len(rs) > had; {
		had = len(rs)
		for left := len(q.turn); left > 0 && len(rs) < most; left-- {
			if l := q.turn[0]; sitsOut(l.app) {
				q.turn = append(q.turn[1:], l)
				continue
			}
			rs = append(rs, q.next())
		}
	}
	return rs
}

// lead takes the request whose caller is to lead the next batch, which it will be in. Somebody waits.
func (q *queue) lead(sitsOut func(agent.App) bool) *request {
	if one := q.take(1, sitsOut); len(one) > 0 {
		return one[0]
	}
	return q.next()
}

// back puts back what was taken last, and it is its turn first.
func (q *queue) back(rs []*request) {
	for _, r := range slices.Backward(rs) {
		l := q.line(r.app)
		l.waiting = slices.Insert(l.waiting, 0, r)
		q.n++
		at := slices.Index(q.turn, l)
		copy(q.turn[1:at+1], q.turn[:at])
		q.turn[0] = l
	}
}

// remove takes one out of its line, and reports false when it is not there any more.
func (q *queue) remove(r *request) bool {
	l := q.lines[r.app]
	if l == nil {
		return false
	}
	at := slices.Index(l.waiting, r)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	q.n--
	if len(l.waiting) == 0 {
		delete(q.lines, l.app)
		q.turn = slices.DeleteFunc(q.turn, func(other *line) bool { return other == l })
	}
	return true
}

// debts is what apps have had beyond their part of a batch, by single transactions that were larger: such an app sits out the next
// batches, as long as others wait (deficit round robin, Shreedhar and Varghese 1995).
type debts map[agent.App]int

func (d debts) sitsOut(app agent.App) bool { return d[app] >= appCost }

// spent settles a batch, in which apps had so much.
func (d debts) spent(had map[agent.App]int) {
	for app, n := range had {
		d[app] += n
	}
	for app := range d {
		if d[app] -= appCost; d[app] <= 0 {
			delete(d, app)
		}
	}
}
