package runtime

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/ledger"
)

// taskUsage is what a run that works in a sandbox has used: a file of its session, which is written when what was changed is looked at.
type taskUsage struct {
	Run     agent.RunID    `json:"run"`
	Agent   string         `json:"agent"`
	At      time.Time      `json:"at"`
	Total   agent.ModelSum `json:"total"`          // calls of models, as the ledger counts them
	Models  []modelSpent   `json:"models"`         // the same, by model
	Open    int            `json:"open,omitempty"` // calls under way, which are not in these
	Sandbox sandboxUsage   `json:"sandbox"`
}

// modelSpent sums calls of one model.
type modelSpent struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	agent.ModelSum
}

// sandboxUsage says how long the run has had its sandbox.
type sandboxUsage struct {
	ID          agent.SandboxID `json:"id"`
	Environment string          `json:"environment"`
	Generation  int64           `json:"generation"`
	Wall        time.Duration   `json:"wall"` // nanoseconds in JSON
}

// usageFile is its name, in the folder of the artifacts of the run.
const usageFile = "usage.json"

// lastCalls is how long the end of a CLI's calls of models is waited for: the CLI has heard their answers before they are written down.
const lastCalls = 2 * time.Second

// keepUsage writes what the run has used until now among the files of the session, in the place of what it had before, and returns the path.
func (b *toolbox) keepUsage(ctx context.Context, sb agent.Sandbox) (string, error) {
	run, err := b.r.store.Run(ctx, b.job.App, b.job.Run)
	if err != nil {
		return "", err
	}
	u := taskUsage{
		Run: run.ID, Agent: run.Agent, Models: []modelSpent{},
		Sandbox: sandboxUsage{ID: sb.ID, Environment: sb.Environment, Generation: sb.Generation},
	}
	if u.Open, err = b.callsOpen(ctx, run.ID); err != nil {
		return "", err
	}
	began, err := b.r.boxHadSince(ctx, run, sb)
	if err != nil {
		return "", err
	}
	u.At = time.Now().UTC()
	u.Sandbox.Wall = max(u.At.Sub(began), 0)
	if l := b.r.opts.Ledger; l != nil {
		rows, err := l.Rows(ctx, ledger.Query{App: run.App, Run: run.ID, From: run.Created, To: u.At, By: ledger.ByProvider | ledger.ByModel})
		if err != nil {
			return "", err
		}
		for _, r := range rows {
			u.Models = append(u.Models, modelSpent{r.Provider, r.Model, *r.Models})
			u.Total.Add(*r.Models)
		}
	}
	return b.keepJSON(ctx, b.artifacts()+usageFile, &u)
}

// callsOpen waits a while until no call of a model is under way for a run, and returns how many still are.
func (b *toolbox) callsOpen(ctx context.Context, run agent.RunID) (n int, err error) {
	if b.r.opts.Ledger == nil {
		return 0, nil
	}
	over := time.NewTimer(lastCalls)
	defer over.Stop()
	look := time.NewTicker(lastCalls / 100)
	defer look.Stop()
	for {
		if n = b.r.opts.Ledger.Open(run); n == 0 {
			return 0, nil
		}
		select {
		case <-look.C:
		case <-over.C:
			return n, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// boxHadSince returns since when a run has its sandbox, by what its session tells of that.
func (r *Runtime) boxHadSince(ctx context.Context, run agent.Run, sb agent.Sandbox) (at time.Time, err error) {
	err = r.eachEventOf(ctx, run, 0, func(ev agent.Event) {
		if at.IsZero() && ev.Kind == agent.EventCLI && ev.Name == boxState {
			at = ev.Time
		}
	})
	if at.IsZero() {
		at = later(run.Started, sb.Started)
	}
	return at, err
}
