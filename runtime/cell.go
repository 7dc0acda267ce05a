package runtime

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/reply"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/vault/scrub"
)

// job is what one cell is made for.
type job struct {
	grant.Subject
	kind     agent.UsageKind
	function string
	grants   func() agent.Grants // as they are now; nil for code that runs once
	plugin   agent.Digest
	input    agent.Payload
	config   map[string]string
	limits   agent.Limits // all set
	weight   int          // of the app
	depth    int          // how many agents wait for it
	sinks    sinks
	reply    *reply.Reply                    // of a fetch handler whose response may go out in pieces, else nil
	place    *place                          // the instance that the cell works for; nil when there is none
	clock    func() time.Time                // of a run, which has one of its own
	narrow   func(agent.Limits) agent.Limits // to what a run has left of its limits
	begun    func(done func())               // gets what says that the cell is gone, of a run that goes on without

	quota, appQuota agent.Quota
	in              int64                            // bytes of a request; of an input they are known
	hold            *quota.Hold                      // of a run, which was let in before it began
	doorCall        host.Calls                       // what answers the cell's calls; set by inCell
	traffic         func(sent, received int64) error // set by inCell
	secrets         *scrub.Set                       // that went out of the cell; nil for code that runs once
}

// jobOf returns the job of calling an agent's function.
func (r *Runtime) jobOf(kind agent.UsageKind, rec record, limits agent.Limits) job {
	return job{
		Subject: grant.Subject{App: rec.agent.App, Agent: rec.agent.Name, ID: rec.agent.ID}, kind: kind,
		grants: r.grantsOf(rec), weight: rec.weight, plugin: rec.plugin.Digest, config: rec.agent.Config, limits: limits,
		quota: rec.agent.Quota, appQuota: rec.quota, secrets: new(scrub.Set),
	}
}

// inCell runs a job, with run making the cell. Every cell passes here: it is kept within the quotas, counted, traced, and given
// its door, which is closed when the cell has ended; and what it cost is in the ledger when inCell returns.
func (r *Runtime) inCell(ctx context.Context, j job, run func(context.Context, host.Call) (agent.Usage, error)) error {
	m, err := r.meter(&j)
	if err != nil {
		return r.stats.failed(err)
	}
	defer func() { m.hold.Done(time.Now(), agent.Cost{}) }() // after a panic; else it has been
	ctx, span := r.opts.Tracer.Start(ctx, j.kind.String())
	if j.narrow != nil {
		j.limits = j.narrow(j.limits)
	}
	var d *grant.Door
	j.doorCall = func(ctx context.Context, name string, in []byte) ([]byte, error) { return d.Call(ctx, name, in) }
	d = r.door(j)
	closeDoor := sync.OnceFunc(d.Close)
	defer closeDoor()
	done := sync.OnceFunc(r.stats.begin())
	defer done()
	if j.begun != nil {
		j.begun(done)
	}
	calls := r.pace.calls(&j, d.Call)
	if span.IsRecording() {
		calls = r.traced(calls)
	}
	usage, err := run(ctx, host.Call{
		Plugin: j.plugin, Tenant: j.App, Agent: j.Agent, Weight: j.weight, Function: j.function, Input: j.input, Config: j.config, Limits: j.limits,
		Calls: calls, Depth: j.depth, Vars: j.grants != nil && j.grants().State != nil,
	})
	done()
	closeDoor()
	err = d.Explain(err)
	if j.secrets != nil {
		err = cleanError(j.secrets, err)
	}
	err = m.end(ctx, &j, usage, err)
	endSpan(span, j, usage, err)
	if err != nil {
		return r.stats.failed(err)
	}
	return nil
}

// traced makes a span of each host call. Console output is none.
func (r *Runtime) traced(calls host.Calls) host.Calls {
	return func(ctx context.Context, name string, in []byte) ([]byte, error) {
		if name == abi.CallLog {
			return calls(ctx, name, in)
		}
		ctx, span := r.opts.Tracer.Start(ctx, name)
		out, err := calls(ctx, name, in)
		if err != nil {
			e := agent.AsError(err)
			span.SetAttributes(attribute.String("error.type", e.Kind.String()))
			span.SetStatus(codes.Error, e.Msg)
		}
		span.End()
		return out, err
	}
}

func endSpan(span trace.Span, j job, usage agent.Usage, err error) {
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("skep.app", string(j.App)), attribute.String("skep.agent", j.Agent), attribute.String("skep.function", j.function),
			attribute.Int64("skep.cpu_ns", int64(usage.CPU)), attribute.Int64("skep.memory_bytes", usage.Memory),
			attribute.Int64("skep.host_calls", usage.HostCalls))
		if j.place != nil {
			span.SetAttributes(attribute.String("skep.instance", j.place.id.Key))
		}
		if j.Run != "" {
			span.SetAttributes(attribute.String("skep.run", string(j.Run)), attribute.String("skep.session", string(j.Session)))
		}
		if err != nil {
			e := agent.AsError(err)
			span.SetAttributes(attribute.String("error.type", e.Kind.String()))
			span.SetStatus(codes.Error, e.Msg)
		}
	}
	span.End()
}
