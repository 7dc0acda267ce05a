package instancetest_test

import (
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance/instancetest"
)

func TestMemory(t *testing.T) {
	instancetest.Run(t, func(t *testing.T) instancetest.Rig {
		m := instancetest.NewMemory(nil)
		return instancetest.Rig{
			Store: m, AddAgent: func(id agent.AgentID) { m.AddAgent(agent.DefaultApp, id) }, RemoveAgent: m.RemoveAgent, AddSession: m.AddSession,
			Session: m.Session, Run: m.Run,
		}
	})
}
