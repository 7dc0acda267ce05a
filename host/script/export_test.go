package script

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/script/guest"
)

// upgraded is an engine with another prelude, as a later version of Skep has it.
func upgraded(t *testing.T) *Engine {
	t.Helper()
	ctx := context.Background()
	prelude := bytes.Replace(guest.Prelude, []byte("(function(){"), []byte("(function(){globalThis.newer = {version: 2, more: [1,2,3]};"), 1)
	e, err := newEngine(ctx, cellEngine, prelude, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(ctx) })
	return e
}

func TestGoesOnAfterAnUpgrade(t *testing.T) {
	a := load(t, source(durable))
	w := newWorld()
	call := w.call("all", nil)
	call.Input, call.Waiting.Export = js("3"), true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := a.Run(ctx, call)
	if err != nil || res.Suspended == nil {
		t.Fatal(err)
	}
	old := res.Suspended
	e := upgraded(t)
	b, err := e.Load(ctx, source(durable), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if got := string(run(t, b, w.call("strange", nil)).Image); got == string(old.Image) {
		t.Fatal("the upgrade has the same image")
	}
	_, err = w.try(t, b, "", "", old.Snapshot, says(2, "2"))
	if agent.KindOf(err) != agent.Conflict || !strings.Contains(err.Error(), string(old.Image)) {
		t.Fatal("without its image:", err)
	}
	again := w.call("", old.Snapshot, says(2, "2"))
	again.Waiting.Image = old.Exported
	next := run(t, b, again)
	if next.Image != old.Image {
		t.Errorf("it is of image %s now, and was of %s", next.Image, old.Image)
	}
	last := w.call("", next.Snapshot, says(1, "1"))
	last.Waiting.Image = old.Exported
	res, err = b.Run(ctx, last)
	if want := `{"a":1,"b":2,"c":9,"top":2,"x":3}`; err != nil || string(res.Output.Body) != want {
		t.Errorf("%s, %v", res.Output.Body, err)
	}
	t.Logf("an exported image takes %d bytes", len(old.Exported))
	for n := 0; n < len(old.Exported); n += 1 + len(old.Exported)/100 {
		last.Waiting.Image = bytes.Clone(old.Exported)
		last.Waiting.Image[n] ^= 4
		if _, err := b.Run(ctx, last); err == nil {
			t.Fatalf("byte %d changed, and nobody saw it", n)
		}
		last.Waiting.Image = old.Exported[:n]
		if _, err := b.Run(ctx, last); n > 0 && agent.KindOf(err) != agent.Invalid {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	last.Waiting.Image, last.Limits.Memory = old.Exported, 1<<20
	if _, err := b.Run(ctx, last); agent.AsError(err) == nil || agent.AsError(err).Limit != agent.LimitMemory {
		t.Error("an image past the limit:", err)
	}
}

func run(t *testing.T, a *Agent, c Call) *Suspension {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := a.Run(ctx, c)
	if err != nil || res.Suspended == nil {
		t.Fatal(err)
	}
	return res.Suspended
}

// TestBridgeVersion: who changes the functions of the bridge or the kinds of entry so that older preludes cannot be driven
// changes bridgeVersion too. Functions that are added do not count; then change only the sum below.
func TestBridgeVersion(t *testing.T) {
	const known = "aba3ba688d9816bdbc6175f9e46b601368ec45c0a3fe6c69cccd0c9424fa001e"
	sum := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, bridge, kindCount, maxEntryArgs, bridgeVersion)))
	if sum != known {
		t.Errorf("the bridge has changed, and this is its sum: %s", sum)
	}
}

func FuzzImport(f *testing.F) {
	good, err := exportImage(engine.base, &engine.handles)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:500]) // whole ones take long; what cell.Image.Import makes of them is fuzzed there
	f.Add(good[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		i, _, err := importImage(engine.base, resign(b), 16<<20)
		if err == nil {
			_ = i.Close()
		}
	})
}
