package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/sandbox/preview"
	"github.com/skep-dev/skep/store"
)

const previewScript = `
import { sandbox, waitForEvent } from "skep";
export async function run() {
	const box = await sandbox.open();
	const made = await box.preview(8000, { lasts: 60_000 });
	await waitForEvent("more");
	return { ...made, box: box.id };
}
export async function refused() {
	const box = await sandbox.open();
	const told = [];
	for (const [port, lasts] of [[0], [65536], [1.5], [NaN], [1, 999], [1, 86_400_001], [1, -1], [1, Number.MAX_SAFE_INTEGER]])
		told.push(await box.preview(port, { lasts }).then(() => "made", (e) => e.kind));
	told.push(await box.exec("true", { timeout: 18446744073710 }).then(() => "ran", (e) => e.kind)); // more nanoseconds than there are
	return told.join(" ");
}
export async function once() {
	return (await sandbox.open()).preview(8000).catch((e) => e.kind + ": " + e.message);
}
`

// Code makes a link to a port of its sandbox, which a run that is played again has still; who asked for it is in the audit log.
func TestBoxPreview(t *testing.T) {
	w := newBoxWorld(t, "", previewScript, agent.Cattle, nil)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	links := &preview.Links{Key: []byte("12345678901234567890123456789012"), URL: "https://skep.test", Now: func() time.Time { return now }}
	w.opts.Previews = links
	w = w.again()
	w.agent(agent.Agent{Name: "own", Sandbox: &agent.SandboxUse{Environment: "env@1"}})
	stop := w.start()
	begin := func(function string) agent.Run {
		t.Helper()
		run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "own", Function: function, Input: agent.JSON([]byte("null"))}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	if got, want := w.output(begin("refused")), strings.TrimSpace(strings.Repeat("invalid ", 9)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	run := begin("run")
	eventually(t, "it does not wait", func() bool {
		rec, err := w.store.Run(t.Context(), app, run.ID)
		return err == nil && rec.Status == agent.Waiting
	})
	stop()
	w = w.again()
	w.start()
	if _, err := w.SendEvent(t.Context(), app, run.ID, "more", "", []byte("1")); err != nil {
		t.Fatal(err)
	}
	var made struct {
		preview.PortLink
		Box agent.SandboxID
	}
	if err := json.Unmarshal([]byte(w.output(run)), &made); err != nil || !made.Expires.Equal(now.Add(time.Minute)) {
		t.Fatalf("%+v, %v", made, err)
	}
	token, ok := strings.CutPrefix(made.URL, "https://skep.test"+preview.Path)
	to, err := links.Open(strings.TrimSuffix(token, "/"))
	if want := (preview.Port{App: app, Sandbox: made.Box, Number: 8000}); !ok || err != nil || to != want {
		t.Errorf("%s leads to %+v (%v), want %+v", made.URL, to, err, want)
	}
	var changes []agent.Change
	page, err := w.store.Read(t.Context(), store.AuditLog(app), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page {
		var c agent.Change
		if err := json.Unmarshal(e.Data, &c); err == nil && e.Kind == agent.EventChanged && c.Action == "sandbox.preview" && e.Run == run.ID {
			changes = append(changes, c)
		}
	}
	want := []agent.Change{{Action: "sandbox.preview", Name: string(made.Box), Detail: "port 8000", Agent: "own", Run: run.ID}}
	if d := cmp.Diff(want, changes); d != "" {
		t.Errorf("audit log (-want +got):\n%s", d)
	}
}

// A server that makes no links, or does not know where it is, says so.
func TestBoxPreviewNowhere(t *testing.T) {
	for name, x := range map[string]struct {
		links *preview.Links
		want  string
	}{
		"none":    {nil, "makes no links"},
		"nowhere": {&preview.Links{Key: []byte("key")}, "was not told by which of them it is reached"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBoxWorld(t, "", previewScript, agent.Cattle, nil)
			w.opts.Previews = x.links
			w = w.again()
			w.agent(agent.Agent{Name: "own", Sandbox: &agent.SandboxUse{Environment: "env@1"}})
			w.start()
			run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "own", Function: "once", Input: agent.JSON([]byte("null"))}, store.Once{})
			if err != nil {
				t.Fatal(err)
			}
			if got := w.output(run); !strings.Contains(got, "invalid: ") || !strings.Contains(got, x.want) {
				t.Errorf("%s, want %q", got, x.want)
			}
			w.yard.none()
		})
	}
}
