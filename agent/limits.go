package agent

import (
	"cmp"
	"strconv"
	"time"
)

// Limit names one field of Limits, for errors that say which limit was hit.
type Limit uint8

const (
	NoLimit Limit = iota
	LimitWall
	LimitCPU
	LimitMemory
	LimitTable
	LimitStack
	LimitInput
	LimitOutput
	LimitHostCalls
	LimitLog
	LimitEvents
	LimitConcurrency
	LimitUpload
	LimitModule
	LimitHTTP  // of an outbound request: time, size, count, redirects, headers
	LimitRate  // of a grant
	LimitQuota // of an app or an agent
	LimitState

	MaxLimit = LimitState
)

var limitNames = [...]string{
	"", "wall_time", "cpu_time", "memory", "table", "stack", "input", "output", "host_calls", "log", "events", "concurrency",
	"upload", "module", "http", "rate", "quota", "state",
}

func (l Limit) String() string               { return nameOf(limitNames[:], l) }
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
func (l *Limit) UnmarshalText(b []byte) error {
	return parseName(limitNames[:], b, l, "limit")
}

// Limits bounds one call into a cell. Each limit kills only its own cell. A zero field means the default.
type Limits struct {
	Wall      time.Duration `json:"wall,omitempty"`       // from admission to result, waiting included; nanoseconds in JSON
	CPU       time.Duration `json:"cpu,omitempty"`        // time spent running guest code; nanoseconds in JSON
	Memory    int64         `json:"memory,omitempty"`     // bytes of linear memory
	Table     int64         `json:"table,omitempty"`      // entries of a function table
	Stack     int64         `json:"stack,omitempty"`      // bytes of native call stack
	Input     int64         `json:"input,omitempty"`      // bytes of a call's input
	Output    int64         `json:"output,omitempty"`     // bytes of a call's output
	HostCalls int64         `json:"host_calls,omitempty"` // calls to the host
	Log       int64         `json:"log,omitempty"`        // bytes of console output kept
	Events    int64         `json:"events,omitempty"`     // events emitted
}

// DefaultLimits is what a call gets when neither its agent nor its caller says otherwise.
func DefaultLimits() Limits {
	return Limits{
		Wall: 30 * time.Second, CPU: 10 * time.Second, Memory: 128 << 20, Table: 100_000, Stack: 32 << 20,
		Input: 8 << 20, Output: 8 << 20, HostCalls: 10_000, Log: 256 << 10, Events: 10_000,
	}
}

// MaxLimits is the ceiling for what an agent may ask.
func MaxLimits() Limits {
	return Limits{
		Wall: time.Hour, CPU: 10 * time.Minute, Memory: 1 << 30, Table: 1_000_000, Stack: 64 << 20,
		Input: 64 << 20, Output: 64 << 20, HostCalls: 1_000_000, Log: 16 << 20, Events: 1_000_000,
	}
}

// Or returns l with its zero fields taken from d.
func (l Limits) Or(d Limits) Limits {
	return Limits{
		Wall: cmp.Or(l.Wall, d.Wall), CPU: cmp.Or(l.CPU, d.CPU), Memory: cmp.Or(l.Memory, d.Memory), Table: cmp.Or(l.Table, d.Table),
		Stack: cmp.Or(l.Stack, d.Stack), Input: cmp.Or(l.Input, d.Input), Output: cmp.Or(l.Output, d.Output),
		HostCalls: cmp.Or(l.HostCalls, d.HostCalls), Log: cmp.Or(l.Log, d.Log), Events: cmp.Or(l.Events, d.Events),
	}
}

// Check returns an Invalid error naming the first field that is negative or above its maximum.
func (l Limits) Check(maximum Limits) error {
	for _, f := range []struct {
		limit    Limit
		got, max int64
	}{
		{LimitWall, int64(l.Wall), int64(maximum.Wall)}, {LimitCPU, int64(l.CPU), int64(maximum.CPU)},
		{LimitMemory, l.Memory, maximum.Memory}, {LimitTable, l.Table, maximum.Table}, {LimitStack, l.Stack, maximum.Stack},
		{LimitInput, l.Input, maximum.Input}, {LimitOutput, l.Output, maximum.Output},
		{LimitHostCalls, l.HostCalls, maximum.HostCalls}, {LimitLog, l.Log, maximum.Log}, {LimitEvents, l.Events, maximum.Events},
	} {
		if f.got < 0 || f.got > f.max {
			most := strconv.FormatInt(f.max, 10)
			if f.limit == LimitWall || f.limit == LimitCPU {
				most = time.Duration(f.max).String()
			}
			return &Error{Kind: Invalid, Limit: f.limit, Msg: "limit " + f.limit.String() + " must be between 0 and " + most}
		}
	}
	return nil
}

// Usage is what one call cost.
type Usage struct {
	CPU       time.Duration `json:"cpu"`        // time spent running guest code; nanoseconds in JSON
	Wall      time.Duration `json:"wall"`       // from admission to result; nanoseconds in JSON
	Fuel      int64         `json:"fuel"`       // instructions, counted per region: equal code and input cost equal fuel
	Memory    int64         `json:"memory"`     // bytes of linear memory at the end
	HostCalls int64         `json:"host_calls"` // calls to the host
	In        int64         `json:"in"`         // bytes of input
	Out       int64         `json:"out"`        // bytes of output
	Log       int64         `json:"log"`        // bytes of console output
}
