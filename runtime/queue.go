package runtime

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// task is a run that waits for its turn or is being executed. The run itself stays in the store.
type task struct {
	app     agent.App
	id      agent.RunID
	agent   string
	session agent.SessionID
	in      int64     // bytes of its input
	since   time.Time // when it came to be queued
	resumed bool      // it has run before
	gone    bool      // cancelled before its turn
}

// queue says which run is next. The runs of one session are executed one after the other, in the order they came; agents
// take turns, so that one with a long queue delays only itself. And an app whose runs take long does not take all workers: it may have
// as many as it leaves (dynamic thresholds, Choudhury and Hahne 1998), so that there is one for whoever comes.
type queue struct {
	workers int
	wake    chan struct{} // has room for one

	mu       sync.Mutex
	taken    int               // workers
	having   map[agent.App]int // of these
	queued   map[agent.RunID]*task
	sessions map[agent.SessionID][]*task // an entry means one of its runs is ready or executed; these wait for it
	lanes    map[recordKey]*list.Element // of turns
	turns    *list.List                  // of *lane, each with at least one ready task
}

type lane struct {
	key   recordKey
	ready []*task
}

func newQueue(workers int) *queue {
	return &queue{
		workers: workers, having: map[agent.App]int{}, wake: make(chan struct{}, 1), queued: make(map[agent.RunID]*task), sessions: make(map[agent.SessionID][]*task),
		lanes: make(map[recordKey]*list.Element), turns: list.New(),
	}
}

// push adds a run, unless it is queued already.
func (q *queue) push(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, twice := q.queued[t.id]; twice {
		return
	}
	q.queued[t.id] = t
	if waiting, busy := q.sessions[t.session]; busy {
		q.sessions[t.session] = append(waiting, t)
		return
	}
	q.sessions[t.session] = nil
	q.ready(t)
}

func (q *queue) ready(t *task) {
	key := recordKey{t.app, t.agent}
	if e, ok := q.lanes[key]; ok {
		l := e.Value.(*lane)
		l.ready = append(l.ready, t)
	} else {
		q.lanes[key] = q.turns.PushBack(&lane{key, []*task{t}})
	}
	q.stir()
}

func (q *queue) stir() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop waits for the next run, and for a worker, which leave gives back. It returns nil once ctx has ended. It must not be called by two
// goroutines.
func (q *queue) pop(ctx context.Context) *task {
	for ctx.Err() == nil {
		if t := q.next(); t != nil {
			return t
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

func (q *queue) next() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := q.turns.Front(); e != nil; {
		l := e.Value.(*lane)
		if free := q.workers - q.taken; free == 0 || q.having[l.key.app] > free {
			e = e.Next()
			continue
		}
		t := l.ready[0]
		l.ready = l.ready[1:]
		if len(l.ready) == 0 {
			q.turns.Remove(e)
			delete(q.lanes, l.key)
		} else {
			q.turns.MoveToBack(e)
		}
		if t.gone {
			q.release(t)
			e = q.turns.Front()
			continue
		}
		delete(q.queued, t.id)
		q.taken++
		q.having[t.app]++
		return t
	}
	return nil
}

// leave gives back the worker of a run that was popped.
func (q *queue) leave(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	if q.having[t.app]--; q.having[t.app] == 0 {
		delete(q.having, t.app)
	}
	q.stir()
}

// later puts back a run that was popped and cannot be executed yet. Its session waits with it, until again gives it its turn.
func (q *queue) later(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued[t.id] = t
}

func (q *queue) again(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.gone {
		q.release(t)
		return
	}
	q.ready(t)
}

// done says that t was executed: the next run of its session may go.
func (q *queue) done(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.release(t)
}

func (q *queue) release(t *task) {
	waiting := q.sessions[t.session]
	for len(waiting) > 0 && waiting[0].gone {
		waiting = waiting[1:]
	}
	if len(waiting) == 0 {
		delete(q.sessions, t.session)
		return
	}
	q.sessions[t.session] = waiting[1:]
	q.ready(waiting[0])
}

// remove takes runs out that are to be cancelled before their turn. It returns them as push takes them back.
func (q *queue) remove(ids []agent.RunID) (out []*task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		if t, ok := q.queued[id]; ok {
			again := *t
			out = append(out, &again)
			t.gone = true
			delete(q.queued, id)
		}
	}
	return out
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queued)
}
