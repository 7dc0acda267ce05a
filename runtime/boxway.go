package runtime

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/grant"
	granthttp "github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/store"
)

// BoxWay is the way out of one sandbox. What runs there may make the requests that its agent is granted and that its environment allows, both; they are
// judged, counted, given secrets and told of like those of a cell. It is safe for concurrent use.
type BoxWay struct {
	r           *Runtime
	job         job
	auth        *grant.Authority
	models      *grant.Authority // tells of refusals by itself
	live        *liveAgent
	egress      *egress.Egress
	environment string
	network     []agent.Target
	trace       string
}

// BoxWay returns the way out of a sandbox for the run that uses it, by out, whose limits may be wider than those of cells. The agent's grants count as they
// are at the time of each request.
func (r *Runtime) BoxWay(ctx context.Context, sb agent.Sandbox, env agent.Environment, out *egress.Egress) (*BoxWay, error) {
	rec, err := r.records.resolve(ctx, r.store, sb.App, sb.Agent)
	if err != nil {
		return nil, err
	}
	w := &BoxWay{r: r, job: r.jobOf(agent.UseRun, rec, r.opts.Limits), live: rec.live, egress: out, environment: env.Ref(), network: env.Network}
	w.job.Session, w.job.Run = sb.Session, sb.Run
	if sb.Run != "" {
		run, err := r.store.Run(ctx, sb.App, sb.Run)
		if err != nil && agent.KindOf(err) != agent.NotFound {
			return nil, err
		}
		w.trace = run.Trace
	}
	w.job.sinks = r.logbook.sinks(rec.agent)
	if sb.Session != "" {
		w.job.sinks.event = w.event
	}
	w.auth = grant.NewAuthority(w.job.Subject, w.job.grants, r.quotas, nil) // who asks for the sandbox tells of refusals, to Refused
	w.models = grant.NewAuthority(w.job.Subject, w.job.grants, r.quotas, w.Refused)
	return w, nil
}

// Trace is the traceparent of the run that uses the sandbox: what the box asks for is in its trace. It is "" where there is no run, or no trace.
func (w *BoxWay) Trace() string { return w.trace }

// Client makes one request.
func (w *BoxWay) Client() granthttp.Client {
	j := w.job
	return &boxClient{outbound: outbound{r: w.r, job: &j, auth: w.auth, box: w}}
}

// boxClient is a request of a sandbox, whose bytes count for the quotas of the day and stand in the ledger, each part of a long one before the next moves.
type boxClient struct {
	outbound
	hold  *quota.Hold
	began time.Time
	once  sync.Once
	noted error // of the end
}

// partBytes is how much a request moves before that is written down. So much a kill may keep out of the ledger.
const partBytes = 4 << 20

// Do makes it. Its last part is written down before the end of the response's body is told, or when that is closed.
func (c *boxClient) Do(ctx context.Context, req *egress.Request) (*egress.Response, error) {
	if err := c.r.ledgerReady(); err != nil {
		return nil, err
	}
	info, err := c.r.App(ctx, c.job.App)
	if err != nil {
		return nil, err
	}
	c.job.appQuota, c.job.quota = info.Quota, c.box.live.now.Load().Quota // as they are now
	if c.hold, err = c.r.quotas.Traffic(c.job.quotaCall()); err != nil {
		return nil, err
	}
	c.began = time.Now()
	c.job.traffic = func(sent, received int64) error {
		if err := c.hold.Traffic(sent, received); err != nil {
			return err
		}
		return c.part(ctx)
	}
	res, err := c.outbound.Do(ctx, req)
	if err != nil {
		_ = c.end(ctx, err)
		return nil, err
	}
	res.Body = &ending{res.Body, func(err error) error { return c.end(ctx, err) }}
	return res, nil
}

// part writes down what was moved, once that is much.
func (c *boxClient) part(ctx context.Context) error {
	now := time.Now()
	sent, received := c.hold.Settle(now, partBytes)
	if sent+received == 0 {
		return nil
	}
	return c.note(ctx, now, nil, agent.Cost{Sent: sent, Received: received})
}

// end writes down the rest, once, unless nothing came of the request and nothing was moved.
func (c *boxClient) end(ctx context.Context, err error) error {
	c.once.Do(func() {
		now := time.Now()
		cost := agent.Cost{Wall: now.Sub(c.began)}
		cost.Sent, cost.Received = c.hold.Stop()
		if err == nil || cost.Bytes() > 0 {
			c.noted = c.note(ctx, now, err, cost)
		}
		c.hold.Done(now, cost)
	})
	return c.noted
}

func (c *boxClient) note(ctx context.Context, now time.Time, err error, cost agent.Cost) error {
	l := c.r.opts.Ledger
	if l == nil {
		return nil
	}
	c.mu.Lock()
	to := c.now.Host
	c.mu.Unlock()
	failed := l.Append(agent.UsageEvent{
		Time: now, Kind: agent.UseOutbound, App: c.job.App, Agent: c.job.Agent, Session: c.job.Session, Run: c.job.Run, Function: to,
		Outcome: agent.OutcomeOf(err), Cost: cost,
	})
	if failed != nil {
		c.r.log.ErrorContext(ctx, "what a sandbox moved was not written down", "app", c.job.App, "agent", c.job.Agent, "error", failed)
	}
	return failed
}

// ending is a body whose end is told to then, whose error takes the end's place. A body that is closed before its end ends well.
type ending struct {
	io.ReadCloser
	then func(error) error
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.ReadCloser.Read(b)
	if err == nil {
		return n, nil
	}
	why := err
	if errors.Is(err, io.EOF) {
		why = nil
	}
	if failed := e.then(why); failed != nil && why == nil {
		return 0, failed
	}
	return n, err
}

func (e *ending) Close() error {
	defer func() { _ = e.then(nil) }()
	return e.ReadCloser.Close()
}

// Reach says whether any request to a host and port, by TLS or not as to says, may be made, or why not. It counts nothing.
func (w *BoxWay) Reach(ctx context.Context, to agent.Request) error {
	to.Method, to.Path = http.MethodGet, "/"
	somewhere := func(t agent.Target) bool {
		t.Methods, t.Path = nil, ""
		return t.Has(to)
	}
	if !slices.ContainsFunc(w.network, somewhere) {
		return w.outside(to.Origin())
	}
	if !slices.ContainsFunc(w.job.grants().HTTP, func(g agent.HTTPGrant) bool { return somewhere(g.Allow) }) {
		return w.auth.HTTP(ctx, to) // which says why not
	}
	return nil
}

// within judges by the environment.
func (w *BoxWay) within(to agent.Request) error {
	if slices.ContainsFunc(w.network, func(t agent.Target) bool { return t.Has(to) }) {
		return nil
	}
	return w.outside(to.Method + " " + to.URL())
}

func (w *BoxWay) outside(what string) error {
	e := &agent.Error{
		Kind: agent.Denied, Msg: what + " is not in the network of the environment " + w.environment,
		Hint: "what sandboxes reach is what the environment names and the agent is granted, both; a new revision of the environment can name more",
	}
	if len(w.network) == 0 {
		e.Msg = "the environment " + w.environment + " has no network, so nothing of " + what + " can be reached"
	}
	return e
}

// Caller says for whom the sandbox asks for models now, and for which: those that the agent is granted, and the one that its CLI asks. An Unauthenticated
// error says that it may ask for none any more.
func (w *BoxWay) Caller(ctx context.Context) (gateway.Caller, error) {
	gone := func(what string) (gateway.Caller, error) {
		return gateway.Caller{}, agent.Errorf(agent.Unauthenticated, "the model key is good for nothing any more: %s", what)
	}
	a := w.live.now.Load()
	if a == nil || a == deleted {
		return gone("the agent was deleted")
	}
	if w.job.Run != "" {
		run, err := w.r.store.Run(ctx, w.job.App, w.job.Run)
		switch {
		case agent.KindOf(err) == agent.NotFound && err != nil:
			return gone("the run is gone")
		case err != nil:
			return gateway.Caller{}, err
		case run.Status.Terminal():
			return gone("the run has ended")
		}
	}
	models := []string{}
	for _, g := range a.Grants.Models {
		models = append(models, g.Name)
	}
	if a.Sandbox != nil && a.Sandbox.CLI != "" {
		models = append(models, cmp.Or(a.Sandbox.Model, abi.DefaultModel))
	}
	return gateway.Caller{App: w.job.App, Agent: w.job.Agent, Session: w.job.Session, Run: w.job.Run, Models: models, Use: w.use}, nil
}

// use counts one use of the grants of a model. The one that the CLI asks may have none.
func (w *BoxWay) use(ctx context.Context, model string) error {
	if !w.models.MayModel(model) {
		return nil
	}
	return w.models.Model(ctx, model)
}

// Refused writes down what the sandbox asked for and did not get, where its agent's author and the operator look.
func (w *BoxWay) Refused(ctx context.Context, ref agent.Refusal) {
	ref.Agent, ref.Run = w.job.Agent, w.job.Run
	w.r.refused(w.job)(ctx, ref)
}

// event adds to the log of the session.
func (w *BoxWay) event(ctx context.Context, ev agent.Event) {
	ev.Run = w.job.Run
	if err := w.r.append(ctx, store.SessionLog(w.job.App, w.job.Session), []agent.Event{ev}); err != nil {
		w.r.log.ErrorContext(ctx, "what a sandbox did outside was not written to its session", "app", w.job.App, "agent", w.job.Agent, "kind", ev.Kind, "error", err)
	}
}
