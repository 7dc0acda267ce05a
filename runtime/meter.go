package runtime

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/store/ledger"
)

// meter counts what one cell costs, keeps that within the quotas, and writes it down.
type meter struct {
	r    *Runtime
	hold *quota.Hold
}

// meter begins to count for a job, whose limits it lowers to what the quotas leave. A job whose cost could not be written down,
// or for which a quota has no room, is refused. The meter must be ended.
func (r *Runtime) meter(j *job) (*meter, error) {
	if err := r.ledgerReady(); err != nil {
		return nil, err
	}
	m := &meter{r: r, hold: j.hold}
	if m.hold == nil {
		var err error
		if m.hold, err = r.quotas.Begin(j.quotaCall()); err != nil {
			return nil, err
		}
	}
	j.limits, j.traffic = m.hold.Limits, m.hold.Traffic
	return m, nil
}

func (j *job) quotaCall() quota.Call {
	return quota.Call{
		App: j.App, Agent: j.Agent, AppQuota: j.appQuota, AgentQuota: j.quota, Limits: j.limits,
		In: max(j.in, int64(len(j.input.Body))),
	}
}

// end writes down what the cell cost, before anybody learns what it came to, and returns how it ended.
func (m *meter) end(ctx context.Context, j *job, u agent.Usage, err error) error {
	now := time.Now()
	cost := agent.CostOf(u)
	if err != nil { // the output went nowhere
		cost.Out = 0
	}
	cost.Sent, cost.Received = m.hold.Stop()
	err = m.hold.Explain(err)
	noted := m.r.note(ctx, agent.UsageEvent{
		Time: now, Kind: j.kind, App: j.App, Agent: j.Agent, Session: j.Session, Run: j.Run, Function: j.function,
		Outcome: agent.OutcomeOf(err), Cost: cost,
	})
	m.hold.Done(now, cost)
	if err == nil {
		err = noted
	}
	return err
}

// Loaded writes down what loading code has cost, which no quota is for: images go when memory is short, whoever uses it.
func (r *Runtime) Loaded(l host.Loaded) {
	_ = r.note(context.Background(), agent.UsageEvent{
		Time: time.Now(), Kind: agent.UseLoad, App: l.Who.App, Agent: l.Who.Agent, Outcome: agent.OutcomeOf(l.Err), Cost: agent.CostOf(l.Usage),
	})
}

// note adds an event to the ledger. For a run that is tried again and again, as its end is.
func (r *Runtime) note(ctx context.Context, e agent.UsageEvent) error {
	l := r.opts.Ledger
	if l == nil {
		return nil
	}
	err := l.Append(e)
	if err != nil && e.Run != "" {
		err = r.retry(ctx, func(context.Context) error { return l.Append(e) })
	}
	if err != nil {
		r.log.ErrorContext(ctx, "usage was not written down", "app", e.App, "agent", e.Agent, "error", err)
	}
	return err
}

func (r *Runtime) ledgerReady() error {
	if r.opts.Ledger == nil {
		return nil
	}
	return r.opts.Ledger.Ready()
}

// Ledger returns the usage ledger, which is nil when nothing is metered.
func (r *Runtime) Ledger() *ledger.Ledger { return r.opts.Ledger }

// QuotaUses returns how much of their quotas the app and those of the agents use that are named.
func (r *Runtime) QuotaUses(ctx context.Context, app agent.App, agents []agent.Agent) ([]agent.QuotaUse, error) {
	info, err := r.App(ctx, app)
	if err != nil {
		return nil, err
	}
	out := []agent.QuotaUse{r.quotas.Used(app, "", info.Quota)}
	for _, a := range agents {
		out = append(out, r.quotas.Used(app, a.Name, a.Quota))
	}
	return out, nil
}
