package worker

import (
	"math"
	"time"
)

// How workers are ranked: who has used much of late gives way, at the kernel, to who has not, and to the server. It is the kernel that
// knows who waits, so a worker that has the machine for itself loses nothing.
const (
	rankEvery = 50 * time.Millisecond
	rankOver  = 500 * time.Millisecond // what was used so long ago counts a third

	politeness = 5  // steps of a worker below the server's priority
	humblest   = 19 // of one that uses as much as greedy, which is the kernel's last

	modest = 0.1 // of a processor, up to which a worker is not set back
	greedy = 0.5 // of a processor, at which it is set back all the way
)

// rank is what a worker has used of late, and the priority that it has for that.
type rank struct {
	used time.Duration // processor time in all, when it was looked at last
	load float64       // of late, in processors
	nice int
}

// niceOf returns the priority of a worker with a load.
func niceOf(load float64) int {
	x := min(1, max(0, (load-modest)/(greedy-modest)))
	return politeness + int(math.Round(x*(humblest-politeness)))
}

// after returns the rank of who has used so much in all, some time after it was looked at last.
func (r rank) after(used, passed time.Duration) rank {
	keep := math.Exp(-passed.Seconds() / rankOver.Seconds())
	r.load = r.load*keep + (1-keep)*(used-r.used).Seconds()/passed.Seconds()
	r.used, r.nice = used, niceOf(r.load)
	return r
}

// rankWorkers sees to the workers' priorities until the pool ends.
func (p *Pool) rankWorkers() {
	tick := time.NewTicker(rankEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case now := <-tick.C:
			p.rankAll(now.Sub(last))
			last = now
		case <-p.ctx.Done():
			return
		}
	}
}

// rankAll looks at what every worker that works, or is set back, has used since it was looked at last.
func (p *Pool) rankAll(passed time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		select {
		case <-w.ready: // what it uses until then is not its app's
		default:
			continue
		}
		if w.users == 0 && w.rank.nice == politeness || w.link.isDead() {
			continue
		}
		pid := int(w.pid.Load())
		used, err := processorTime(pid)
		if err != nil {
			continue // it is gone
		}
		if w.rank.nice == 0 {
			w.rank = rank{used: used, nice: politeness}
			continue
		}
		was := w.rank.nice
		if w.rank = w.rank.after(used, passed); w.rank.nice == was {
			continue
		}
		if err := setRank(pid, w.rank.nice); err != nil {
			p.log.Debug("a worker process keeps its priority", "app", w.tenant, "error", err)
		}
	}
}
