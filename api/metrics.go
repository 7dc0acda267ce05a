package api

import (
	"bytes"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// typeMetrics is the text format of Prometheus.
const typeMetrics = "text/plain; version=0.0.4; charset=utf-8"

// metrics counts requests by operation, and shows what the runtime and the store count.
type metrics struct {
	registry *prometheus.Registry
	requests []*[6]prometheus.Counter // by the route's index and the status's first digit
	seconds  []prometheus.Observer    // by the route's index
}

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skep_http_requests_total", Help: "Requests answered.",
	}, []string{"operation", "status"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "skep_http_request_seconds", Help: "Time to answer, or to begin to answer with a stream.",
		Buckets: []float64{.0005, .001, .005, .025, .1, .5, 2.5, 10, 60},
	}, []string{"operation"})
	for _, r := range s.routes {
		var classes [6]prometheus.Counter
		for class := range classes {
			classes[class] = requests.WithLabelValues(r.id, fmt.Sprintf("%dxx", class))
		}
		m.requests = append(m.requests, &classes)
		m.seconds = append(m.seconds, seconds.WithLabelValues(r.id))
	}
	m.registry.MustRegister(requests, seconds, figures{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// note counts a request that took so long to answer, or to begin to answer when the answer is a stream.
func (m *metrics) note(index, status int, took time.Duration) {
	m.requests[index][min(status/100, 5)].Inc()
	m.seconds[index].Observe(took.Seconds())
}

// text writes all figures in the text format of Prometheus.
func (m *metrics) text() ([]byte, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range families {
		f.Metric = slices.DeleteFunc(f.Metric, func(x *dto.Metric) bool { // operations that nobody called
			return f.GetName() == "skep_http_requests_total" && x.GetCounter().GetValue() == 0 ||
				f.GetName() == "skep_http_request_seconds" && x.GetHistogram().GetSampleCount() == 0
		})
		if len(f.Metric) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// figures shows what the runtime and the store count, at the moment of asking.
type figures struct{ s *Server }

// Describe makes it an unchecked collector: what there is to tell depends on what happened.
func (figures) Describe(chan<- *prometheus.Desc) {}

func (f figures) Collect(ch chan<- prometheus.Metric) {
	tell := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		var names, values []string
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
	}
	counter := func(name, help string, v int64, labels ...string) {
		tell(prometheus.CounterValue, name, help, float64(v), labels...)
	}
	gauge := func(name, help string, v float64, labels ...string) {
		tell(prometheus.GaugeValue, name, help, v, labels...)
	}

	st := f.s.rt.Stats()
	counter("skep_cells_total", "Cells begun.", st.Calls)
	gauge("skep_cells", "Cells that run now.", float64(st.Live))
	for _, k := range slices.Sorted(maps.Keys(st.Failures)) {
		counter("skep_failures_total", "Calls and runs that failed.", st.Failures[k], "kind", k.String())
	}
	for l, n := range st.Kills {
		counter("skep_kills_total", "Calls and runs that a limit or a quota ended.", n, "limit", l.String())
	}
	for grant, n := range st.Refused {
		counter("skep_grants_refused_total", "What agents asked for without a grant.", n, "grant", grant)
	}
	for _, k := range slices.Sorted(maps.Keys(st.Runs)) {
		counter("skep_runs_total", "Runs that ended.", st.Runs[k], "status", k.String())
	}
	gauge("skep_runs_queued", "Runs that wait.", float64(st.RunsQueued))
	gauge("skep_runs_active", "Runs being executed.", float64(st.RunsActive))
	gauge("skep_sockets", "Connections with instances.", float64(st.Sockets))
	gauge("skep_listeners", "Listeners of event logs.", float64(st.Listeners))
	counter("skep_log_lines_dropped_total", "Console lines of stateless calls that were not kept.", st.LinesDropped)
	for outcome, n := range st.Egress.Requests {
		counter("skep_egress_requests_total", "Outbound requests of agents that ended.", n, "outcome", outcome)
	}
	counter("skep_egress_sent_bytes_total", "Bytes of bodies that agents sent.", st.Egress.Sent)
	counter("skep_egress_received_bytes_total", "Bytes of bodies that agents received, decoded.", st.Egress.Received)

	d := st.Durable
	gauge("skep_instances", "Instances that were used lately and are held in memory.", float64(d.Owned))
	gauge("skep_turns_waiting", "Turns that wait for an instance.", float64(d.Waiting))
	counter("skep_turns_total", "Turns of instances: calls, alarms, messages, events of sockets.", d.Turns)
	tell(prometheus.CounterValue, "skep_turn_seconds_total", "Time that turns took, their commits included.", d.TurnTime.Seconds())
	counter("skep_turns_refused_total", "Turns for which the line was too long.", d.Refused)
	counter("skep_instances_acquired_total", "Instances that this process became the owner of.", d.Acquired)
	counter("skep_commits_total", "Commits of instances.", d.Commits)
	counter("skep_commit_parts_total", "Parts of those commits.", d.Parts)
	counter("skep_commit_bytes_total", "Bytes of those commits.", d.Bytes)
	tell(prometheus.CounterValue, "skep_commit_seconds_total", "Time that those commits took.", d.Syncing.Seconds())
	counter("skep_alarms_total", "Alarms that were dealt with.", d.Alarms)
	counter("skep_alarms_dead_total", "Alarms that failed for the last time, and became dead letters.", st.DeadAlarms)
	counter("skep_messages_total", "Messages between instances that were delivered.", d.Messages)

	counter("skep_snapshots_total", "Snapshots of runs that gave up their cells.", st.Snapshots)
	counter("skep_snapshot_bytes_total", "Bytes of those snapshots.", st.SnapshotBytes)
	counter("skep_wakes_total", "Runs that went on in another cell.", st.Wakes)
	tell(prometheus.CounterValue, "skep_wake_seconds_total", "Time from when they could go on until their cell began.", st.Waking.Seconds())

	if f.s.o.Tools != nil {
		for _, t := range f.s.o.Tools.Totals() {
			of := []string{"app", string(t.App), "server", t.Server}
			counter("skep_tool_calls_total", "Calls of tools that were made.", t.Calls, of...)
			counter("skep_tool_calls_failed_total", "Of these, those that failed.", t.Failed, of...)
			tell(prometheus.CounterValue, "skep_tool_seconds_total", "Time that they took, waiting for others included.", t.Took.Seconds(), of...)
		}
	}

	if f.s.o.Models != nil {
		for _, t := range f.s.o.Models.Totals() {
			of := []string{"app", string(t.App), "provider", t.Provider}
			counter("skep_model_calls_total", "Calls to providers of models.", t.Calls, of...)
			for c, n := range t.Faults {
				counter("skep_model_faults_total", "Of these, those that failed, by the class of what failed.", n, append(of, "class", c.String())...)
			}
			counter("skep_model_tokens_total", "Tokens that they used.", t.Tokens.Input, append(of, "direction", "input")...)
			counter("skep_model_tokens_total", "Tokens that they used.", t.Tokens.Output, append(of, "direction", "output")...)
			tell(prometheus.CounterValue, "skep_model_cost_dollars_total", "What those cost whose price is known.", float64(t.Micro)/1e6, of...)
			tell(prometheus.CounterValue, "skep_model_seconds_total", "Time that they took, streams to their end.", t.Took.Seconds(), of...)
			gauge("skep_model_keys_refused", "Keys that the provider refuses, which are not used for a while.", float64(t.Refused), of...)
			gauge("skep_model_provider_open", "1 while no call goes to the provider, as it failed several times in a row.", oneIf(t.Open), of...)
		}
	}

	w := f.s.st.Stats()
	counter("skep_store_batches_total", "Durable commits, each of many transactions.", w.Batches)
	counter("skep_store_transactions_total", "Transactions committed.", w.Transactions)
	counter("skep_store_bytes_total", "Bytes of keys and values written.", w.Bytes)
	counter("skep_store_failed_total", "Commits that were refused or could not be written.", w.Failed)
	tell(prometheus.CounterValue, "skep_store_writing_seconds_total", "Time spent making commits durable.", w.Writing.Seconds())
	gauge("skep_store_disk_free_bytes", "Room on the data directory's disk.", float64(w.DiskFree))

	gauge("skep_uptime_seconds", "Time since the server was made.", f.s.o.Now().Sub(f.s.started).Seconds())
	gauge("skep_build_info", "Version of the server.", 1, "version", f.s.o.Version, "go", goruntime.Version())
}
