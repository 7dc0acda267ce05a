package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/skep-dev/skep/agent"
)

// Bounds of what a transcript keeps.
const (
	maxTranscriptLogs  = 1000
	maxTranscriptBytes = 256 << 10 // of lines
	maxTranscriptCalls = 1000
)

// Transcript is what a run has said and which tools it has called so far.
type Transcript struct {
	Run   agent.Run
	Logs  []agent.LogLine
	Calls []agent.ToolUse // in the order in which they were judged; Duration, Bytes and Error once they have ended
	More  int             // lines and calls that are not kept here; all are in the session's log
	After int64           // number of the newest event that it knows

	bytes int
	index map[uint64]int // of Calls, by the call's number
}

func (t *Transcript) add(e agent.Event) {
	t.After = e.Seq
	switch e.Kind {
	case agent.EventLog:
		var line agent.LogLine
		_ = json.Unmarshal(e.Data, &line)
		if t.bytes += len(line.Message); len(t.Logs) == maxTranscriptLogs || t.bytes > maxTranscriptBytes {
			t.More++
			return
		}
		t.Logs = append(t.Logs, line)
	case agent.EventToolCalled:
		var use agent.ToolUse
		_ = json.Unmarshal(e.Data, &use)
		if len(t.Calls) == maxTranscriptCalls {
			t.More++
			return
		}
		t.index[use.Call] = len(t.Calls)
		t.Calls = append(t.Calls, use)
	case agent.EventToolReturned:
		var use agent.ToolUse
		_ = json.Unmarshal(e.Data, &use)
		if i, ok := t.index[use.Call]; ok {
			c := &t.Calls[i]
			c.Duration, c.Bytes, c.Error = use.Duration, use.Bytes, use.Error
		}
	}
}

// Watch follows a run until it has ended, or until all that it waits for is a person, or until ctx ends: then the transcript tells how far it has
// come, and there is no error. each, which may be nil, gets each event.
func (r *Runtime) Watch(ctx context.Context, app agent.App, id agent.RunID, each func(agent.Event)) (Transcript, error) {
	t := Transcript{index: map[uint64]int{}}
	s, err := r.SubscribeRun(ctx, app, id, 0)
	if err != nil {
		return t, err
	}
	defer s.Close()
	for over := false; !over; {
		got, err := s.Next(ctx)
		if errors.Is(err, io.EOF) || err != nil && ctx.Err() != nil {
			break
		}
		if err != nil {
			return t, err
		}
		for _, f := range got {
			if t.add(f.Event); each != nil {
				each(f.Event)
			}
			over = over || f.Event.Kind == agent.EventRunWaiting
		}
		if over {
			run, err := r.store.Run(ctx, app, id)
			if err != nil {
				return t, err
			}
			over = run.Status == agent.Waiting && len(run.Asks) > 0
		}
	}
	t.Run, err = r.store.Run(context.WithoutCancel(ctx), app, id)
	return t, err
}
