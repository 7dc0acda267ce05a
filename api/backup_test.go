package api

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/store/backup"
	"github.com/skep-dev/skep/store/engine"
)

// What a running server streams restores.
func TestBackup(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	if _, err := r.c.PutPlugin(ctx, client.Upload{Name: "p", Version: "1", Filename: "p.ts", Body: []byte("export function hello() {}")}, nil); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := r.c.Backup(ctx, &file); err != nil {
		t.Fatal(err)
	}
	_, sum, err := backup.Restore(ctx, &file, filepath.Join(t.TempDir(), "new"), &backup.Options{Engine: engine.Pebble})
	if err != nil || sum.Blobs != 1 {
		t.Errorf("restored %+v, %v", sum, err)
	}
}

// A client that goes away in the middle, and a store that is damaged, leave nothing that passes for a backup.
func TestBackupCutShort(t *testing.T) {
	r := start(t, nil)
	if _, err := r.c.PutPlugin(context.Background(), client.Upload{Name: "p", Version: "1", Filename: "p.ts", Body: []byte("export function hello() {}")}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := r.c.Backup(ctx, &bytes.Buffer{})
	wantKind(t, err, agent.Cancelled)
	if res := r.do("GET", "/v1/backup", "", "Authorization", "Bearer nobody"); res.StatusCode != 401 {
		t.Errorf("a stranger got status %d", res.StatusCode)
	}
}
