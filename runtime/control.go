package runtime

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
)

// SendEvent brings an event from outside to runs that wait for it, or will: each keeps it until it asks. The answer is the run as it
// is then. Repeated with the same once-key it is kept once; "" is none. A run that has ended is a Conflict.
func (r *Runtime) SendEvent(ctx context.Context, app agent.App, id agent.RunID, eventType, onceKey string, data json.RawMessage) (agent.Run, error) {
	return agent.Run{}, errNotYet
}

// PauseRuns holds runs where they next come to rest, and gives up their cells; ResumeRuns lets them go on.
func (r *Runtime) PauseRuns(ctx context.Context, app agent.App, ids ...agent.RunID) ([]agent.Run, error) {
	return nil, errNotYet
}

func (r *Runtime) ResumeRuns(ctx context.Context, app agent.App, ids ...agent.RunID) ([]agent.Run, error) {
	return nil, errNotYet
}

// RestartRun starts a new run that has the journal of another up to where a step began, and goes on from there. An empty step is
// the beginning. The new run belongs to the same session.
func (r *Runtime) RestartRun(ctx context.Context, app agent.App, id agent.RunID, step string) (agent.Run, error) {
	return agent.Run{}, errNotYet
}

// TerminateRuns has runs fail where they are, so that their rollbacks run; they end as cancelled. Cancel ends them at once, without.
func (r *Runtime) TerminateRuns(ctx context.Context, app agent.App, ids ...agent.RunID) ([]agent.Run, error) {
	return nil, errNotYet
}

// Resolution says what became of a call whose effect is not known.
type Resolution struct {
	Call   uint64          `json:"call"`
	Action string          `json:"action"`           // "retry" makes it again; "answer" gives Output; "fail" gives Error
	Output json.RawMessage `json:"output,omitempty"` // what the call would have returned, as its answer in the journal is
	Error  string          `json:"error,omitempty"`
}

// ResolveRun lets an Uncertain run go on.
func (r *Runtime) ResolveRun(ctx context.Context, app agent.App, id agent.RunID, res Resolution) (agent.Run, error) {
	return agent.Run{}, errNotYet
}

// JournalEntry is an entry of a run's journal as a person reads it.
type JournalEntry struct {
	Seq    int64           `json:"seq"`
	Kind   string          `json:"kind"` // "begin", "start", "done", "deliver", "timer", "event", "snapshot", "commit", "end", ...
	Time   time.Time       `json:"time"`
	Call   uint64          `json:"call,omitempty"`
	Name   string          `json:"name,omitempty"`   // of the call
	Input  json.RawMessage `json:"input,omitempty"`  // clipped, and clean of secrets
	Output json.RawMessage `json:"output,omitempty"` // clipped, and clean of secrets
	Error  *agent.RunError `json:"error,omitempty"`
	Class  string          `json:"class,omitempty"` // pure, read, idempotent, once
	Bytes  int64           `json:"bytes,omitempty"`
	Life   int             `json:"life,omitempty"`
}

// Journal returns one page of a run's journal.
func (r *Runtime) Journal(ctx context.Context, app agent.App, id agent.RunID, after int64, limit int) ([]JournalEntry, error) {
	return nil, errNotYet
}

// ReplayRequest says with what a run is played again: its own code, another version, or code given here.
type ReplayRequest struct {
	Plugin string        // reference; empty for the run's own
	Source *agent.Source // code of this text; nil for Plugin
}

// Replay is what came of it.
type Replay struct {
	Same       bool              `json:"same"`
	Calls      int               `json:"calls"` // that were compared
	Output     *agent.Payload    `json:"output,omitempty"`
	Error      *agent.RunError   `json:"error,omitempty"`
	Difference *ReplayDifference `json:"difference,omitempty"`
	Complete   bool              `json:"complete"` // whether the run had ended; else it was played as far as its journal goes
}

// ReplayDifference is where the two first differ.
type ReplayDifference struct {
	Call uint64 `json:"call,omitempty"` // 0 for the result
	Was  string `json:"was"`
	Now  string `json:"now"`
}

// ReplayRun plays a run again, offline: nothing leaves, nothing is changed.
func (r *Runtime) ReplayRun(ctx context.Context, app agent.App, id agent.RunID, req ReplayRequest) (Replay, error) {
	return Replay{}, errNotYet
}

// ExportRun writes a run, its events and its journal as NDJSON, clean of secrets.
func (r *Runtime) ExportRun(ctx context.Context, app agent.App, id agent.RunID, w io.Writer) error {
	return errNotYet
}
