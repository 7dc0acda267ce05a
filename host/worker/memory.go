package worker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// lookEvery is how often the pool looks at its workers' memory.
const lookEvery = 500 * time.Millisecond

var errHungry = errors.New("the workers used more memory than they may together, and this one the most for its app's weight")

// watch sees to it that the workers together use no more memory than they may, until the pool ends. Idle ones go first,
// the largest before others; then the one that uses most for its app's weight, whose calls fail.
func (p *Pool) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.look()
		case <-p.ctx.Done():
			return
		}
	}
}

// look ends at most one worker that has calls: what the others use is looked at again when it is gone.
func (p *Pool) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	sizes, total := map[*process]int64{}, int64(0)
	for _, w := range p.workers {
		if w.link.isDead() {
			continue
		}
		sizes[w] = p.opts.measure(w)
		total += sizes[w]
	}
	for total > p.opts.Total {
		w := hungriest(sizes)
		if w == nil {
			return
		}
		total -= sizes[w]
		delete(sizes, w)
		if w.users == 0 {
			p.dismiss(w)
			continue
		}
		p.log.Warn("a worker process is ended to free memory", "app", w.tenant, "of all", total, "allowed", p.opts.Total)
		w.link.fail(errHungry)
		return
	}
}

// hungriest returns the worker to end next. The caller holds the pool's lock.
func hungriest(sizes map[*process]int64) (worst *process) {
	var most float64
	for w, size := range sizes {
		x := float64(size) / float64(w.appWeight())
		isWorse := worst == nil || x > most
		if worst != nil && (w.users == 0) != (worst.users == 0) {
			isWorse = w.users == 0
		}
		if isWorse {
			worst, most = w, x
		}
	}
	return worst
}

func (w *process) appWeight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(1, w.weight)
}

// footprint returns the bytes of memory that are a worker's alone: what it wrote, and its images.
func footprint(w *process) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid.Load()))
	if err != nil {
		return 0 // it has not started, or is gone
	}
	return kilobytes(b, "RssAnon:") + kilobytes(b, "RssShmem:")
}

// roomForAll is what workers may use together unless told: three quarters of what this machine has, or of what its
// control group may use.
func roomForAll() int64 {
	room := int64(8 << 30)
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		room = kilobytes(b, "MemTotal:")
	}
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			room = min(room, n)
		}
	}
	return room / 4 * 3
}

// kilobytes reads a line such as "RssAnon:  12 kB", in bytes; 0 when there is none.
func kilobytes(b []byte, name string) int64 {
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) > 1 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}
