package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
)

// TestTraceOfABox follows one trace from a caller through a run and the driver in its container to the model that the command-line agent there asks.
func TestTraceOfABox(t *testing.T) {
	image := imagetest.CLI(t, boxCLINames...)
	coll := collectSpans(t)
	s := serveBoxes(t, dockertest.Static(t, "github.com/skep-dev/skep/cmd/skep-driver"), nil)
	s.agent(t, "pi", "pi", agent.Cattle, agent.Environment{Image: image}, script.Turn{Match: &script.Match{}, Reply: &script.Reply{Text: "All done."}})

	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/runs", strings.NewReader(`{"agent":"pi","input":{"task":"Say it.","attachments":[]}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + s.token}, "Content-Type": {"application/json"}, "Traceparent": {"00-" + trace + "-00f067aa0ba902b7-01"}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var run agent.Run
	if err := json.NewDecoder(res.Body).Decode(&run); err != nil {
		t.Fatal(err)
	}
	s.ended(t, run, agent.Completed)
	s.stop() // and with it, all spans are told
	coll.mu.Lock()
	defer coll.mu.Unlock()
	for _, name := range []string{"POST /v1/runs", "run", "chat m"} {
		found := 0
		for _, sp := range coll.all {
			if sp.Name != name {
				continue
			}
			if found++; sp.TraceID != trace {
				t.Errorf("%q is in trace %q, want %q", name, sp.TraceID, trace)
			}
		}
		if found == 0 {
			t.Errorf("there is no span %q; there are %+v", name, coll.all)
		}
	}
}
