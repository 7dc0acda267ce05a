package store

import (
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// RunFilter picks runs; zero fields pick all.
type RunFilter struct {
	Agent   string
	Session agent.SessionID
	Status  agent.RunStatus
	Asking  bool // only those that have open questions
}

func (f RunFilter) match(run agent.Run) bool {
	return (f.Agent == "" || f.Agent == run.Agent) && (f.Session == "" || f.Session == run.Session) &&
		(f.Status == agent.UnknownStatus || f.Status == run.Status) && (!f.Asking || len(run.Asks) > 0)
}

// Run returns the run with that id.
func (s *Store) Run(ctx context.Context, app agent.App, id agent.RunID) (run agent.Run, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		r, err := find(snap, runs, app, string(id), "run", nil)
		if err == nil {
			run, err = s.decodeRun(recKey(runs, app, string(id)), r)
		}
		return err
	})
	return run, err
}

// Runs lists an app's runs that f picks, newest first. A page may be short before the end: only an empty next ends it.
func (s *Store) Runs(ctx context.Context, app agent.App, f RunFilter, page agent.Page) (list []agent.Run, next string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		bytes := 0
		load := func(_ int64, id string) (agent.Run, bool, error) {
			if bytes > maxReadBytes {
				return agent.Run{}, false, errFull
			}
			_, run, err := s.readRun(snap, app, id)
			keep := err == nil && f.match(run)
			if keep {
				bytes += bodyBytes(run)
			}
			return run, keep, err
		}
		switch {
		case f.Asking:
			list, next, err = indexPages(snap, byRunAsking, app, "", page, load)
		case f.Session != "":
			list, next, err = indexPages(snap, byRunSession, app, string(f.Session), page, load)
		case f.Status != agent.UnknownStatus && !f.Status.Terminal():
			list, next, err = indexPages(snap, byStatus(f.Status), app, "", page, load)
		case f.Agent != "":
			list, next, err = indexPages(snap, byRunAgent, app, f.Agent, page, load)
		default:
			list, next, err = collectionPages(snap, runs, app, page, load)
		}
		return err
	})
	return list, next, err
}

func bodyBytes(run agent.Run) int {
	n := len(run.Input.Body) + instance.AsksSize(run.Asks)
	if run.Output != nil {
		n += len(run.Output.Body)
	}
	return n
}

// Unfinished returns the runs of every app that a process has work to do for (RunStatus.Active), oldest first in each app. It costs
// nothing for those that wait.
func (s *Store) Unfinished(ctx context.Context) (list []agent.Run, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		prefix := join(prefixBy, string(byRunLive), "")
		return snap.each(prefix, prefixEnd(prefix), false, func(k key, id []byte) error {
			app := agent.App(k.parts(string(prefix))[0])
			_, run, err := s.readRun(snap, app, string(id))
			if err == nil && !run.Status.Active() {
				err = corrupt(k, "run %s is %s", id, run.Status)
			}
			list = append(list, run)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
