package main

import (
	"strings"
	"testing"
	"time"

	engine "github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
)

// TestBoxFaults has boxes that do not come up, or whose driver is not ours. Each run ends with an error that says what is wrong, the log tells it, and nothing
// is left.
func TestBoxFaults(t *testing.T) {
	t.Parallel()
	image := imagetest.Tools(t)
	s := serveBoxes(t, dockertest.Static(t, "github.com/skep-dev/skep/cmd/skep/testdata/hostile"), func(o *sandboxOptions) { o.hello = 10 * time.Second })
	t.Run("of", func(t *testing.T) {
		for i, f := range []struct {
			name, image string
			kind        agent.Kind
			text        string // of the run's error
			told        string // by the driver, before
		}{ // in the order of the driver's ways; what is beyond these has none
			{"mute", image, agent.Unavailable, "did not say hello within 10s", ""},
			{"ends", image, agent.Failed, "ended with exit status 7: hostile: this machine is not for me", ""},
			{"replay", image, agent.Unavailable, "was lost", "the second hello was answered refused"},
			{"flood", image, agent.Unavailable, "was lost: its box ended with exit status 7: hostile: 200 are stored: <nil>", strings.Repeat("x", driver.MaxEvent-1024)},
			{"giant", image, agent.Unavailable, "was lost", ""},
			{"missing", "skep-test/none:1", agent.NotFound, "there is no image skep-test/none:1", ""},
		} {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				env := agent.Environment{Image: f.image, Size: agent.SandboxSize{Memory: 256 << 20, Disk: int64(64+i) * 4 << 20}}
				s.agent(t, f.name, "codex", agent.Cattle, env, script.Turn{Match: &script.Match{}, Reply: &script.Reply{Text: "nobody asks"}})
				run := s.failed(t, s.task(t, f.name, "", "say something"), f.kind, f.text)
				list := s.events(t, run)
				if last := list[len(list)-1]; !strings.Contains(s.tale(t, run), f.text) {
					t.Errorf("the log says nothing of it; the last is %s %s", last.Kind, last.Data)
				}
				if f.told != "" && !strings.Contains(s.tale(t, run), f.told) {
					t.Errorf("the driver has not told %.100q:\n%.10000s", f.told, s.tale(t, run))
				}
				if n := len(toldOf[driver.TextData](t, list, driver.DriverLog)); f.name == "flood" && n != 200 {
					t.Errorf("%d events of 200 are in the log", n)
				}
			})
		}
	})
	s.nothing(t)
}

// killed has the container of a run killed from outside, in the middle of a turn.
func (c *boxCLI) killed(t *testing.T, env agent.Environment) {
	name := c.name + "-killed"
	c.agent(t, name, c.name, agent.Cattle, env, c.turns()...)
	run := c.task(t, name, "", "go SLOW")
	c.until(t, "the CLI speaks", func() bool { return strings.Contains(c.tale(t, run), strings.TrimSpace(boxSlow)) })
	c.kill(t, c.box(t, name))
	run = c.failed(t, run, agent.Failed, "the sandbox was lost in the middle of the turn")
	if n := len(toldOf[driver.TurnEnd](t, c.events(t, run), driver.TurnEnded)); n != 0 {
		t.Errorf("%d turns have ended", n)
	}
}

// kill kills the container of a sandbox, as somebody at the machine would.
func (s *boxServer) kill(t *testing.T, sb agent.Sandbox) {
	t.Helper()
	of := engine.Filters{}.Add("label", sandbox.BoxLabel+"="+string(sb.ID))
	list, err := s.engine.ContainerList(t.Context(), engine.ContainerListOptions{Filters: of})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("the sandbox has %d containers (%v)", len(list.Items), err)
	}
	if _, err := s.engine.ContainerKill(t.Context(), list.Items[0].ID, engine.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
}
