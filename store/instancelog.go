package store

import (
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// InstanceLog is a log of an instance's own. Commits of the instance append to it, and trim it; here it can be read and followed. It
// is empty before the first, and when there is no such instance.
func InstanceLog(id instance.ID, name string) Log { return instanceLogOf(id, instance.OwnLog(name)) }

// extentOf reads how far a log goes that a caller names.
func extentOf(snap snapshot, l Log) (extent, error) {
	if l.kind == instanceLog || l.kind == journalLog {
		x, _, err := findInstLog(snap, snap, l)
		return x, err
	}
	return openLog(snap, l)
}

// AgentName returns the name of the agent with an id, or a NotFound error.
func (s *Store) AgentName(ctx context.Context, app agent.App, id agent.AgentID) (name string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		b, found, err := snap.get(byKey(byAgentID, app, string(id)))
		if err == nil && !found {
			err = notFound("agent", string(id))
		}
		name = string(b)
		return err
	})
	return name, err
}
