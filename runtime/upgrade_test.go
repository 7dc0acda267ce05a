package runtime_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/script/guest"
	"github.com/skep-dev/skep/runtime"
)

const approved = `
import { emit, step, waitForEvent } from "skep";
export async function pair() {
	let told = 0;
	const wait = (type) => waitForEvent(type).then((v) => { told++; emit("told", v); return v; });
	const sum = await Promise.all([wait("approval"), step("check", () => waitForEvent("checked"))]);
	return [sum, told];
}
export async function version() { return [globalThis.newer?.version ?? 1, Math.random() < 1]; }
`

// upgraded is another process over the same store, of a version of Skep that has another prelude.
func (w *world) upgraded() *world {
	w.t.Helper()
	n := &world{rig: &rig{t: w.t, store: w.store, db: w.db}, dir: w.dir}
	prelude := bytes.Replace(guest.Prelude, []byte("(function(){"), []byte("(function(){globalThis.newer = {version: 2, more: [1,2,3]};"), 1)
	if bytes.Equal(prelude, guest.Prelude) {
		w.t.Fatal("the prelude is the same")
	}
	h, err := host.New(w.t.Context(), &host.Options{Prelude: prelude, Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) {
		return n.LoadSource(ctx, d)
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = h.Close(context.WithoutCancel(w.t.Context())) })
	n.cells, n.Runtime = h, runtime.New(w.store, h, nil)
	return n
}

// A run that waits for an approval, with a step under way beside it, is carried to a version of Skep in which the image of its code is
// another. It goes on in the image that it had; and where that is lost, from the beginning of its journal.
func TestRunOutlivesAnUpgrade(t *testing.T) {
	for name, lose := range map[string]bool{"by its image": false, "from its journal": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, approved, nil)
			stop := w.start()
			run := w.until(w.begin("pair", "null"), agent.EventRunWaiting)
			if run.Wait.For != "several" {
				t.Fatalf("the run waits for %+v", run.Wait)
			}
			w.event(run, "approval", `{"by":"Ada"}`)
			w.until(run, agent.EventEmit)
			for run.Lives != 2 || run.Status != agent.Waiting {
				run = w.until(run, agent.EventRunWaiting)
			}
			if got := w.output(w.begin("version", "null")); got != "[1,true]" {
				t.Fatalf("version %s", got)
			}
			stop()
			images := w.images(run)
			if len(images) == 0 {
				t.Fatal("no snapshot names an image")
			}
			if lose {
				for _, d := range images {
					w.lose(d)
				}
			}
			next := w.upgraded()
			next.start()
			if got := next.output(next.begin("version", "null")); got != "[2,true]" {
				t.Fatalf("the prelude of the upgrade is not the other: %s", got)
			}
			next.event(run, "checked", `true`)
			if got, want := next.output(run), `[[{"by":"Ada"},true],1]`; got != want {
				t.Errorf("output %s, want %s", got, want)
			}
			if n := tally(next.sessionLog(run))[`told {"by":"Ada"}`]; n != 1 {
				t.Errorf("an event is there %d times: %q", n, next.sessionLog(run))
			}
			if now, err := next.store.Run(t.Context(), app, run.ID); err != nil || now.Lost != 0 || now.Lives != 3 {
				t.Errorf("run %+v, %v", now, err)
			}
		})
	}
}

// images lists the images that a run's snapshots are of, by where they are kept.
func (w *world) images(run agent.Run) (list []agent.Digest) {
	w.t.Helper()
	for _, d := range w.SnapshotImages(w.t.Context(), run) {
		if d != "" && !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// lose removes a blob's file.
func (w *world) lose(d agent.Digest) {
	w.t.Helper()
	removed := 0
	err := filepath.WalkDir(w.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && bytes.Contains([]byte(path), []byte(string(d)[len(d)-20:])) {
			removed++
			return os.Remove(path)
		}
		return err
	})
	if err != nil || removed != 1 {
		w.t.Fatalf("%d files of blob %s were removed: %v", removed, d, err)
	}
}
