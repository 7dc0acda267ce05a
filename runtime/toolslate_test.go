package runtime_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
)

// A call that gets no answer in time is named in the error, which has the place in the script that made it.
func TestCodeNamesTheCallThatIsLate(t *testing.T) {
	w := newToolWorld(t, "")
	rev, err := w.store.Doc(t.Context(), store.ToolServers, app, "fs", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.PutDoc(t.Context(), store.ToolServers, app, "fs", rev, agent.ToolServer{
		App: app, Name: "fs", Kind: agent.MCPStdio, Command: []string{"fs"}, Timeout: time.Second, Effects: map[string]agent.Effect{"look": agent.Read},
	}); err != nil {
		t.Fatal(err)
	}
	w.shelf.hold = func(ctx context.Context, _ string, _ *tools.CallOptions) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	w.start()
	run := w.wait(w.code("const n = 1;\nawait tools.fs.look({ n });\n").ID)
	if run.Status != agent.RunFailed || !strings.Contains(run.Error.Msg, "fs.look has not answered within 1s") || run.Error.Pos.Line != 2 || run.Error.Pos.Column == 0 {
		t.Errorf("the run is %s with %s", run.Status, shown(run.Error))
	}
}
