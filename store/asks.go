package store

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// stowAsks returns the questions of a run as its record keeps them, and as they will be read. A run that has ended has none, whatever
// it says.
func (s *Store) stowAsks(run agent.Run) ([]agent.Approval, body, error) {
	if len(run.Asks) == 0 || run.Status.Terminal() {
		return nil, body{}, nil
	}
	if len(run.Asks) > agent.MaxAsks {
		return nil, body{}, agent.Errorf(agent.Invalid, "run %s has %d open questions: %d are allowed", run.ID, len(run.Asks), agent.MaxAsks)
	}
	asks := slices.Clone(run.Asks)
	for i := range asks {
		asks[i].Created, asks[i].Expires = stamp(asks[i].Created), stamp(asks[i].Expires)
	}
	data, err := plainJSON(asks)
	if err != nil {
		return nil, body{}, agent.Wrap(agent.Invalid, err, "the questions of the run cannot be written as JSON")
	}
	if len(data) > instance.MaxAllAsks {
		return nil, body{}, agent.Errorf(agent.Invalid, "the open questions of run %s are %d bytes: %d are allowed", run.ID, len(data), instance.MaxAllAsks)
	}
	b, err := s.stow(data, instance.MaxAsks)
	return asks, b, err
}

// fetchAsks returns the questions of the run whose record is at k.
func (s *Store) fetchAsks(k key, r row) (asks []agent.Approval, err error) {
	if !asking(r) {
		return nil, nil
	}
	data, err := s.fetch(k, r, bodyOfAsks)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &asks); err != nil {
		return nil, corrupt(k, "its questions: %v", err)
	}
	return asks, nil
}

const bodyOfAsks = 2

// asking reports whether the run of that record has questions.
func asking(r row) bool { return len(r.bodies) > bodyOfAsks && !r.bodies[bodyOfAsks].empty() }

// Asking lists an app's runs that have open questions, oldest first. A page may be short before the end: only an empty next ends it.
func (s *Store) Asking(ctx context.Context, app agent.App, page agent.Page) (found []agent.Run, next string, err error) {
	if !isPart(string(app)) {
		return []agent.Run{}, "", nil
	}
	err = s.view(ctx, func(snap snapshot) error {
		bytes := 0
		l := list{prefix: byPrefix(byRunAsking, app, ""), oldest: true}
		found, next, err = pages(snap, l, page, func(_ int64, id string) (agent.Run, bool, error) {
			if bytes > maxReadBytes {
				return agent.Run{}, false, errFull
			}
			r, run, err := s.readRun(snap, app, id)
			if err == nil && !asking(r) {
				err = corrupt(recKey(runs, app, id), "%s names it, and it asks nothing", byRunAsking)
			}
			bytes += bodyBytes(run)
			return run, true, err
		})
		return err
	})
	return found, next, err
}
