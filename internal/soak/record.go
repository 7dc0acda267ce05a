package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// phase is a part of the time.
type phase uint8

const (
	quiet phase = iota
	loaded
	phases
)

// record is what was seen. It is safe for concurrent use.
type record struct {
	began time.Time

	mu     sync.Mutex
	phase  phase
	attack string                          // that is under way
	beside map[string]map[string][]float64 // seconds, by attack and kind of work
	took   [phases]map[string][]float64    // seconds, by kind of work
	errors []string
	failed int // calls of a worker that was killed
	kills  map[agent.App][]time.Time
	memory []sample

	still      [phases]Still
	stillKnown bool
}

// sample is resident memory, of this process and its children, at a time after the beginning.
type sample struct{ at, bytes float64 }

func newRecord() *record {
	r := &record{began: time.Now(), kills: map[agent.App][]time.Time{}, beside: map[string]map[string][]float64{}}
	for p := range r.took {
		r.took[p] = map[string][]float64{}
	}
	return r
}

func (r *record) setPhase(p phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = p
}

func (r *record) attacked(how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attack = how
	if r.beside[how] == nil {
		r.beside[how] = map[string][]float64{}
	}
}

func (r *record) killed(app agent.App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kills[app] = append(r.kills[app], time.Now())
}

const maxErrors = 50 // that are kept

// add notes a piece of work. An error is one unless the app's worker was killed meanwhile, and it says unavailable.
func (r *record) add(app agent.App, op string, came time.Time, err error) {
	took := time.Since(came)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.took[r.phase][op] = append(r.took[r.phase][op], took.Seconds())
		if beside := r.beside[r.attack]; beside != nil {
			beside[op] = append(beside[op], took.Seconds())
		}
	case agent.KindOf(err) == agent.Unavailable && slices.ContainsFunc(r.kills[app], came.Add(-killGrace).Before):
		r.failed++
	case len(r.errors) < maxErrors:
		r.errors = append(r.errors, fmt.Sprintf("%s, %s of %s: %v", time.Since(r.began).Round(time.Millisecond), op, app, err))
	}
}

// killGrace is how long before a call its worker may have been killed and the call still find it.
const killGrace = time.Second

// watch samples memory until ctx ends.
func (r *record) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s := sample{time.Since(r.began).Seconds(), resident()}
			r.mu.Lock()
			r.memory = append(r.memory, s)
			r.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// resident returns the memory of this process and its children that is not pages of files.
func resident() (bytes float64) {
	self := strconv.Itoa(os.Getpid())
	for _, dir := range glob("/proc/[0-9]*") {
		s := status(dir)
		if filepath.Base(dir) == self || s["PPid"] == self {
			bytes += kilobytes(s["RssAnon"]) + kilobytes(s["RssShmem"])
		}
	}
	return bytes
}

// openFiles counts what is open but images, of which a host keeps as many as it has room for, and the database's tables, of
// which there are as many as there is data.
func openFiles() (n int) {
	for _, fd := range glob("/proc/self/fd/*") {
		target, err := os.Readlink(fd)
		if err == nil && !strings.HasPrefix(target, "/memfd:skep-image") && filepath.Base(filepath.Dir(target)) != "db" {
			n++
		}
	}
	return n
}

func glob(pattern string) []string {
	list, _ := filepath.Glob(pattern) // the patterns are well formed
	return list
}

func status(dir string) map[string]string {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil // it is gone
	}
	fields := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

func kilobytes(s string) float64 {
	n, _ := strconv.ParseFloat(strings.TrimSuffix(s, " kB"), 64) // nothing is 0
	return n * 1024
}
