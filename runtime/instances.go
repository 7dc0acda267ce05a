package runtime

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/store/instance"
)

// InstanceCall asks for a call of an instance's method, in a turn of its own. Limits may lower what the agent has, never raise it.
type InstanceCall struct {
	Agent, Key, Function string
	Input                agent.Payload
	Limits               agent.Limits
}

// Instance is what is known of an instance from outside.
type Instance struct {
	Agent    string          `json:"agent"`
	Key      string          `json:"key"`
	Created  time.Time       `json:"created"`
	Updated  time.Time       `json:"updated"`
	Version  agent.Digest    `json:"version,omitempty"` // of the code that its newest turn ran
	State    agent.StateSize `json:"state"`
	LogBytes int64           `json:"log_bytes"`
	Alarms   int64           `json:"alarms"`
	Outbox   int64           `json:"outbox"` // messages that are on their way
	Children int64           `json:"children"`
	Sockets  int             `json:"sockets"` // connections that are open now
	Waiting  int             `json:"waiting"` // turns that wait in its line now
	Commits  int64           `json:"commits"` // of all its life
	Parent   *InstanceName   `json:"parent,omitempty"`
	Shared   json.RawMessage `json:"shared,omitempty"` // the state that clients see; in an inspection only
	Own      []InstanceName  `json:"own,omitempty"`    // its children; in an inspection only
}

// InstanceName names an instance by its agent's name.
type InstanceName struct {
	Agent string `json:"agent"`
	Key   string `json:"key"`
}

// Alarm is an alarm of an instance, or a dead letter.
type Alarm struct {
	Name    string          `json:"name"`
	Method  string          `json:"method"`
	Payload json.RawMessage `json:"payload,omitempty"`
	At      time.Time       `json:"at"`
	Every   time.Duration   `json:"every,omitempty"` // nanoseconds in JSON
	Cron    string          `json:"cron,omitempty"`
	Zone    string          `json:"zone,omitempty"`
	Attempt int             `json:"attempt,omitempty"` // that failed
	Dead    bool            `json:"dead,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// CallInstance calls a method of an instance, which is made when it is not there.
func (r *Runtime) CallInstance(ctx context.Context, app agent.App, req InstanceCall) (host.Result, error) {
	return host.Result{}, errNotYet
}

// Instances returns one page of an agent's instances in the order of keys.
func (r *Runtime) Instances(ctx context.Context, app agent.App, name string, p agent.Page) ([]Instance, string, error) {
	return nil, "", errNotYet
}

// InspectInstance returns all that is known of one instance but its state.
func (r *Runtime) InspectInstance(ctx context.Context, app agent.App, name, key string) (Instance, error) {
	return Instance{}, errNotYet
}

// DeleteInstances ends instances with all that is theirs: state, alarms, children, connections, waiting runs.
func (r *Runtime) DeleteInstances(ctx context.Context, app agent.App, name string, keys ...string) error {
	return errNotYet
}

// ExportInstance writes an instance's state, alarms, children and own events as NDJSON, one record a line, each with a "kind".
func (r *Runtime) ExportInstance(ctx context.Context, app agent.App, name, key string, w io.Writer) error {
	return errNotYet
}

// ListStorage returns one page of an instance's own state. EditStorage changes it, in a turn without a cell.
func (r *Runtime) ListStorage(ctx context.Context, app agent.App, name, key string, q agent.StateRange) ([]agent.StateEntry, string, error) {
	return nil, "", errNotYet
}

func (r *Runtime) EditStorage(ctx context.Context, app agent.App, name, key string, edits ...agent.StateEdit) (int64, error) {
	return 0, errNotYet
}

// Alarms lists an instance's alarms, dead letters too, in the order of names.
func (r *Runtime) Alarms(ctx context.Context, app agent.App, name, key, after string, limit int) ([]Alarm, string, error) {
	return nil, "", errNotYet
}

// CancelAlarms takes alarms back and drops dead letters. RetryAlarm sets a dead letter to be due now, with all its attempts.
func (r *Runtime) CancelAlarms(ctx context.Context, app agent.App, name, key string, alarms ...string) error {
	return errNotYet
}

func (r *Runtime) RetryAlarm(ctx context.Context, app agent.App, name, key, alarm string) (Alarm, error) {
	return Alarm{}, errNotYet
}

// SubscribeInstance follows an instance's own events: what it emitted, its state as it changed, alarms.
func (r *Runtime) SubscribeInstance(ctx context.Context, app agent.App, name, key string, after int64) (*Subscription, error) {
	return nil, errNotYet
}

var errNotYet = agent.Errorf(agent.Internal, "not there yet")

var _ instance.Store // until this file is done
