package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store"
)

// keepArguments has a judgement's entry hold the arguments of a question whose record shows their beginning only: a line of JSON for each call.
func (x *execution) keepArguments(ctx context.Context, e *journal.Entry, ask agent.Approval) error {
	lines := make([][]byte, len(ask.Calls))
	for i, c := range ask.Calls {
		lines[i] = c.Args // which has no line break: it was compacted
	}
	body := bytes.Join(lines, []byte("\n"))
	d, err := x.r.store.PutBlob(ctx, body)
	e.Blob, e.Bytes = d, int64(len(body))
	return err
}

// Arguments returns the arguments of a call that a person is or was asked about, as they are sent: byte for byte what the digest in the approval is
// of. call counts the calls of the approval from 1, undos among them. They are there as long as the run's journal.
func (r *Runtime) Arguments(ctx context.Context, app agent.App, id agent.ApprovalID, call int) (json.RawMessage, error) {
	name, n, err := id.Split()
	if err != nil {
		return nil, err
	}
	run, err := r.store.Run(ctx, app, name)
	if err != nil {
		if agent.KindOf(err) == agent.NotFound {
			err = noApproval(id)
		}
		return nil, err
	}
	var judged *journal.Entry
	err = r.eachEntryOf(ctx, run, func(e journal.Entry) error {
		if e.Kind == journal.Judged && e.Call == n && e.Flag {
			judged = &e
		}
		return nil
	})
	if err == nil && judged == nil {
		err = noApproval(id)
	}
	if err != nil {
		return nil, err
	}
	var j journal.Judgement
	if err := json.Unmarshal(judged.Out, &j); err != nil {
		return nil, agent.Wrap(agent.Internal, err, "what was asked by "+string(id)+" cannot be read")
	}
	if call < 1 || call > len(j.Calls) {
		return nil, agent.Errorf(agent.NotFound, "%s asks about %d calls, and there is no call %d of it", id, len(j.Calls), call)
	}
	args, err := r.argumentsOf(ctx, run, id, judged.Blob, call-1)
	if err == nil && agent.DigestOf(args) != j.Calls[call-1].Args {
		err = agent.Errorf(agent.Internal, "the arguments of call %d of %s are not kept as they were", call, id)
	}
	return args, err
}

// argumentsOf reads the arguments of the call at index i: from the blob where they were too long for the question, else from the question.
func (r *Runtime) argumentsOf(ctx context.Context, run agent.Run, id agent.ApprovalID, blob agent.Digest, i int) (json.RawMessage, error) {
	if blob != "" {
		body, err := r.store.Blob(ctx, blob)
		if err != nil {
			return nil, err
		}
		if lines := bytes.Split(body, []byte("\n")); i < len(lines) {
			return lines[i], nil
		}
		return nil, nil
	}
	at := slices.IndexFunc(run.Asks, func(a agent.Approval) bool { return a.ID == id })
	if at >= 0 && i < len(run.Asks[at].Calls) {
		return run.Asks[at].Calls[i].Args, nil
	}
	log := store.SessionLog(run.App, run.Session)
	for after := run.FirstSeq - 1; ; { // it was answered: the log has it
		events, err := r.store.Read(ctx, log, after, 256)
		if err != nil || len(events) == 0 {
			return nil, err
		}
		for _, e := range events {
			var asked agent.Approval
			if e.Kind == agent.EventApprovalRequested && e.Run == run.ID && json.Unmarshal(e.Data, &asked) == nil && asked.ID == id && i < len(asked.Calls) {
				return asked.Calls[i].Args, nil
			}
		}
		after = events[len(events)-1].Seq
	}
}
