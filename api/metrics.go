package api

import (
	"bytes"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"time"
)

// typeMetrics is the text format of Prometheus.
const typeMetrics = "text/plain; version=0.0.4; charset=utf-8"

// bounds are the upper ends of the buckets of request times.
var bounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, 2500 * time.Millisecond, 10 * time.Second, time.Minute,
}

// metrics counts requests by operation.
type metrics struct{ ops []operation }

type operation struct {
	id      string
	classes [6]atomic.Int64 // by the status's first digit
	buckets [len(bounds) + 1]atomic.Int64
	total   atomic.Int64 // nanoseconds
}

func newMetrics(rs []route) *metrics {
	m := &metrics{ops: make([]operation, len(rs))}
	for i, r := range rs {
		m.ops[i].id = r.id
	}
	return m
}

// note counts a request that took so long to answer, or to begin to answer when the answer is a stream.
func (m *metrics) note(index, status int, took time.Duration) {
	op := &m.ops[index]
	op.classes[min(status/100, 5)].Add(1)
	op.total.Add(int64(took))
	i := 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	op.buckets[i].Add(1)
}

// text writes all figures in the text format of Prometheus.
func (m *metrics) text(s *Server) []byte {
	var b bytes.Buffer
	family := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	one := func(name, kind, help string, v any) {
		family(name, kind, help)
		fmt.Fprintf(&b, "%s %v\n", name, v)
	}

	family("skep_http_requests_total", "counter", "Requests answered.")
	for i := range m.ops {
		for class := range m.ops[i].classes {
			if n := m.ops[i].classes[class].Load(); n > 0 {
				fmt.Fprintf(&b, "skep_http_requests_total{operation=%q,status=\"%dxx\"} %d\n", m.ops[i].id, class, n)
			}
		}
	}
	family("skep_http_request_seconds", "histogram", "Time to answer, or to begin to answer with a stream.")
	for i := range m.ops {
		m.ops[i].write(&b)
	}

	st := s.rt.Stats()
	one("skep_cells_total", "counter", "Cells begun.", st.Calls)
	one("skep_cells", "gauge", "Cells that run now.", st.Live)
	family("skep_failures_total", "counter", "Calls and runs that failed.")
	for _, k := range slices.Sorted(maps.Keys(st.Failures)) {
		fmt.Fprintf(&b, "skep_failures_total{kind=%q} %d\n", k, st.Failures[k])
	}
	family("skep_runs_total", "counter", "Runs that ended.")
	for _, k := range slices.Sorted(maps.Keys(st.Runs)) {
		fmt.Fprintf(&b, "skep_runs_total{status=%q} %d\n", k, st.Runs[k])
	}
	one("skep_runs_queued", "gauge", "Runs that wait.", st.RunsQueued)
	one("skep_runs_active", "gauge", "Runs being executed.", st.RunsActive)
	one("skep_listeners", "gauge", "Listeners of event logs.", st.Listeners)
	one("skep_log_lines_dropped_total", "counter", "Console lines of stateless calls that were not kept.", st.LinesDropped)

	var mem goruntime.MemStats
	goruntime.ReadMemStats(&mem)
	one("skep_goroutines", "gauge", "Goroutines.", goruntime.NumGoroutine())
	one("skep_heap_bytes", "gauge", "Bytes of Go heap in use.", mem.HeapInuse)
	one("skep_uptime_seconds", "gauge", "Time since the server was made.", s.o.Now().Sub(s.started).Seconds())
	family("skep_build_info", "gauge", "Version of the server.")
	fmt.Fprintf(&b, "skep_build_info{version=%q,go=%q} 1\n", s.o.Version, goruntime.Version())
	return b.Bytes()
}

func (op *operation) write(b *bytes.Buffer) {
	var n int64
	counts := [len(bounds) + 1]int64{}
	for i := range counts {
		counts[i] = op.buckets[i].Load()
		n += counts[i]
	}
	if n == 0 {
		return
	}
	var sum int64
	for i, d := range bounds {
		sum += counts[i]
		fmt.Fprintf(b, "skep_http_request_seconds_bucket{operation=%q,le=\"%v\"} %d\n", op.id, d.Seconds(), sum)
	}
	fmt.Fprintf(b, "skep_http_request_seconds_bucket{operation=%q,le=\"+Inf\"} %d\n", op.id, n)
	fmt.Fprintf(b, "skep_http_request_seconds_sum{operation=%q} %v\n", op.id, time.Duration(op.total.Load()).Seconds())
	fmt.Fprintf(b, "skep_http_request_seconds_count{operation=%q} %d\n", op.id, n)
}
