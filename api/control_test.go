package api

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// What a run is played again with comes as JSON, as a file, or as a form with several.
func TestReplayRequest(t *testing.T) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	w, err := z.Create("main.ts")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("export {}")); err != nil {
		t.Fatal(err)
	}
	z.Close()
	formType, form := form(t, "main.ts", "export {}", "lib.ts", "export {}")
	for _, tt := range []struct {
		name, filename, mediaType, body string
		plugin, source                  string // source is the kind and the files
		err                             string
	}{
		{"nothing", "", "", "", "", "", ""},
		{"an empty object", "", "application/json", "{}", "", "", ""},
		{"a plugin", "", "application/json", `{"plugin":"order@2"}`, "order@2", "", ""},
		{"no media type", "", "", `{"plugin":"order@2"}`, "order@2", "", ""},
		{"code", "", "application/json", `{"code":"export {}","files":{"lib.ts":"export {}"}}`, "", "script main.ts lib.ts main.ts", ""},
		{"JavaScript", "", "application/json", `{"code":"export {}","language":"js"}`, "", "script main.js main.js", ""},
		{"both", "", "application/json", `{"plugin":"a","code":"export {}"}`, "", "", "both"},
		{"another field", "", "application/json", `{"plugins":"a"}`, "", "", "plugins"},
		{"another language", "", "application/json", `{"code":"x","language":"cobol"}`, "", "", "cobol"},
		{"a script", "order.ts", "application/octet-stream", "export {}", "", "script order.ts order.ts", ""},
		{"a module", "", "application/wasm", "\x00asm\x01\x00\x00\x00", "", "wasm main.wasm main.wasm", ""},
		{"a package", "x.zip", "application/zip", packed.String(), "", "script main.ts main.ts", ""},
		{"a form", "", formType, form, "", "script main.ts lib.ts main.ts", ""},
		{"something else", "notes.txt", "text/plain", "hello", "", "", ".txt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := replayRunRequest{Filename: tt.filename, Type: tt.mediaType, Body: []byte(tt.body)}.request()
			if tt.err != "" {
				if e := wantKind(t, err, agent.Invalid); !strings.Contains(e.Msg+e.Hint, tt.err) {
					t.Errorf("%+v", e)
				}
				return
			}
			source := ""
			if req.Source != nil {
				source = req.Source.Kind.String() + " " + req.Source.Main + " " + strings.Join(sorted(req.Source.Files), " ")
			}
			if err != nil || req.Plugin != tt.plugin || source != tt.source {
				t.Errorf("%q %q %v", req.Plugin, source, err)
			}
		})
	}
}

func sorted(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }

// awaiting starts a run that waits for an event, and returns it when it does.
func (r *rig) awaiting(key, eventType string) agent.Run {
	r.t.Helper()
	ctx := context.Background()
	run, err := r.c.StartRun(ctx, client.NewRun{Agent: "a", Function: "await", Key: key, Input: fmt.Appendf(nil, `{"type":%q}`, eventType)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.reaches(run.ID, agent.EventRunWaiting)
	if run, err = r.c.Run(ctx, run.ID); err != nil || run.Status != agent.Waiting {
		r.t.Fatalf("%+v %v", run, err)
	}
	return run
}

// reaches waits for an event of a run.
func (r *rig) reaches(id agent.RunID, kind agent.EventKind) {
	r.t.Helper()
	for e, err := range r.c.Events(context.Background(), client.RunLog(id), 0, true) {
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Kind == kind {
			return
		}
	}
	r.t.Fatalf("run %s ended without %s", id, kind)
}

func TestRunEvents(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	c := r.unchecked()
	for _, eventType := range []string{"approval", "a/b", "é ?x=1#y", "%2F", ".."} {
		run := r.awaiting("k", eventType)
		if run.Wait == nil || run.Wait.For != "event" || run.Wait.Name != eventType {
			t.Errorf("%q: %+v", eventType, run.Wait)
		}
		for n := range 3 { // what is sent under one key is kept once
			if _, err := c.SendEvent(ctx, run.ID, "early", "click-1", fmt.Appendf(nil, "%d", n)); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.SendEvent(ctx, run.ID, eventType, "", json.RawMessage(`{"by":"Ada"}`)); err != nil {
			t.Error(err)
		}
		run = r.wait(run.ID)
		if run.Status != agent.Completed || !strings.Contains(string(run.Output.Body), "Ada") || run.Lives < 2 || run.Wait != nil {
			t.Errorf("%q: %+v", eventType, run)
		}
		got := 0
		for e := range c.Events(ctx, client.RunLog(run.ID), 0, false) {
			if e.Kind == agent.EventReceived && e.Name == "early" {
				got++
			}
		}
		if got != 1 {
			t.Errorf("%q: early came %d times", eventType, got)
		}
		_, err := c.SendEvent(ctx, run.ID, eventType, "", nil)
		wantKind(t, err, agent.Conflict)
	}
	run := r.awaiting("k", "nothing")
	if res := r.do("POST", "/v1/runs/"+string(run.ID)+"/events/nothing", ""); res.StatusCode != 200 { // no data is null
		t.Errorf("%s %s", res.Status, res.body)
	}
	if run = r.wait(run.ID); run.Status != agent.Completed || !strings.Contains(string(run.Output.Body), "null") {
		t.Errorf("%+v", run)
	}
	if res := r.do("POST", "/v1/runs/"+string(run.ID)+"/events/x", "{oops"); res.StatusCode != 400 {
		t.Errorf("%s %s", res.Status, res.body)
	}
}

func TestRunControl(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	one, two := r.awaiting("k1", "go"), r.awaiting("k2", "go")
	list, err := r.c.Runs(ctx, client.RunFilter{Status: agent.Waiting}, agent.Page{})
	if err != nil || len(list.Items) != 2 || list.Items[0].ID != two.ID || list.Items[0].Wait == nil {
		t.Errorf("%+v %v", list, err)
	}
	held, err := r.c.PauseRuns(ctx, one.ID, two.ID)
	if err != nil || len(held) != 2 || held[0].ID != one.ID || held[1].Status != agent.Paused {
		t.Errorf("%+v %v", held, err)
	}
	if _, err := r.c.SendEvent(ctx, one.ID, "go", "", nil); err != nil {
		t.Error(err)
	}
	if run, err := r.c.Run(ctx, one.ID); err != nil || run.Status != agent.Paused {
		t.Errorf("%+v %v", run, err)
	}
	if res := r.do("POST", "/v1/runs/"+string(one.ID)+"/resume", ""); res.StatusCode != 200 {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if run := r.wait(one.ID); run.Status != agent.Completed {
		t.Errorf("%+v", run)
	}
	ended, err := r.c.TerminateRuns(ctx, two.ID)
	if err != nil || len(ended) != 1 {
		t.Errorf("%+v %v", ended, err)
	}
	if run := r.wait(two.ID); run.Status != agent.RunCancelled {
		t.Errorf("%+v", run)
	}
	for _, do := range []func(context.Context, ...agent.RunID) ([]agent.Run, error){r.c.PauseRuns, r.c.ResumeRuns, r.c.TerminateRuns} {
		_, err := do(ctx, one.ID, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
		wantKind(t, err, agent.NotFound)
	}
	_, err = r.c.ResolveRun(ctx, one.ID, agent.Resolution{Call: 1, Action: "retry"})
	wantKind(t, err, agent.Conflict)
	if res := r.do("POST", "/v1/runs/"+string(one.ID)+"/resolve", `{"call":1}`); res.StatusCode != 400 || !strings.Contains(string(res.body), "action") {
		t.Errorf("%s %s", res.Status, res.body)
	}
	again, err := r.c.RestartRun(ctx, one.ID, "", false)
	if err != nil || again.ID == one.ID || again.Session != one.Session {
		t.Fatalf("%+v %v", again, err)
	}
	r.reaches(again.ID, agent.EventRunWaiting)
	var audit []string
	for e := range r.c.Events(ctx, client.AuditLog(client.AuditFilter{Kind: "changed"}), 0, false) {
		if c := decodeChange(t, e); strings.HasPrefix(c.Action, "run.") {
			audit = append(audit, c.Action)
		}
	}
	if want := []string{"run.pause", "run.pause", "run.resume", "run.terminate", "run.restart"}; !slices.Equal(audit, want) {
		t.Errorf("audit %q, want %q", audit, want)
	}
}

func TestJournalReplayExport(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	run := r.awaiting("k", "go")
	if _, err := r.c.SendEvent(ctx, run.ID, "go", "", json.RawMessage(`"on"`)); err != nil {
		t.Fatal(err)
	}
	r.wait(run.ID)
	var kinds []string
	for e, err := range client.All(ctx, func(ctx context.Context, p agent.Page) (client.List[agent.JournalEntry], error) {
		p.Limit = 2
		return r.c.Journal(ctx, run.ID, p)
	}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != int64(len(kinds)+1) {
			t.Errorf("entry %d is at %d", e.Seq, len(kinds)+1)
		}
		kinds = append(kinds, e.Kind)
	}
	figures := string(r.do("GET", "/metrics", "").body) // cells of tests have no snapshots
	for _, want := range []string{"skep_wakes_total 1\n", "skep_snapshots_total 0\n"} {
		if !strings.Contains(figures, want) {
			t.Errorf("the metrics do not have %s", want)
		}
	}
	for _, want := range []string{"begin", "start", "event", "deliver", "end"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("the journal has no %s: %q", want, kinds)
		}
	}
	got, err := r.c.ReplayRun(ctx, run.ID, "")
	if err != nil || !got.Same || !got.Complete || got.Output == nil || !strings.Contains(string(got.Output.Body), "on") {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = r.c.ReplayRunWith(ctx, run.ID, client.Upload{Filename: "main.ts", Body: []byte("export {}")}); err != nil || !got.Same {
		t.Errorf("%+v %v", got, err)
	}
	_, err = r.c.ReplayRun(ctx, run.ID, "nothing@1")
	wantKind(t, err, agent.NotFound)
	var out bytes.Buffer
	if err := r.c.ExportRun(ctx, run.ID, &out); err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var l struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		lines[l.Kind]++
	}
	if lines["run"] != 1 || lines["event"] < 3 || lines["journal"] != len(kinds) {
		t.Errorf("%v", lines)
	}
	wantKind(t, r.c.ExportRun(ctx, "01ARZ3NDEKTSV4RRFFQ69G5FAV", &out), agent.NotFound)
	for _, target := range []string{"/journal?limit=1001", "/journal?after=x"} {
		if res := r.do("GET", "/v1/runs/"+string(run.ID)+target, ""); res.StatusCode != 400 {
			t.Errorf("%s: %s %s", target, res.Status, res.body)
		}
	}
}
