package main

import (
	"path/filepath"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestTarget(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, tokenFile), "skep_owner\n")
	write(t, filepath.Join(dir, serverFile), `{"url":"http://127.0.0.1:5000","pid":1}`)
	empty := t.TempDir()
	tests := []struct {
		name string
		c    cli
		env  map[string]string
		want target
		kind agent.Kind // of the error, when there is one
	}{
		{name: "server on this machine", c: cli{data: dir}, want: target{"http://127.0.0.1:5000", "skep_owner"}},
		{name: "environment", env: map[string]string{"SKEP_URL": "https://skep.example", "SKEP_TOKEN": "t"}, want: target{"https://skep.example", "t"}},
		{name: "flags win", c: cli{url: "http://a", token: "b"}, env: map[string]string{"SKEP_URL": "http://x", "SKEP_TOKEN": "y"}, want: target{"http://a", "b"}},
		{name: "another port here", c: cli{data: dir, url: "http://localhost:1"}, want: target{"http://localhost:1", "skep_owner"}},
		{name: "the owner's token stays here", c: cli{data: dir, url: "https://skep.example"}, kind: agent.Unauthenticated},
		{name: "no server ever ran here", c: cli{data: empty}, kind: agent.Unauthenticated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"SKEP_URL", "SKEP_TOKEN", "SKEP_DATA"} {
				t.Setenv(name, tt.env[name])
			}
			got, err := tt.c.target()
			if err != nil && agent.KindOf(err) != tt.kind || err == nil && got != tt.want {
				t.Errorf("target = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func TestDataDir(t *testing.T) {
	t.Setenv("SKEP_DATA", "")
	t.Setenv("XDG_DATA_HOME", "/x")
	if got, err := (&cli{}).dataDir(); err != nil || got != "/x/skep" {
		t.Errorf("dataDir = %s, %v", got, err)
	}
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "/home/ada")
	if got, err := (&cli{}).dataDir(); err != nil || got != "/home/ada/.local/share/skep" {
		t.Errorf("dataDir = %s, %v", got, err)
	}
	t.Setenv("SKEP_DATA", "/y")
	if got, err := (&cli{}).dataDir(); err != nil || got != "/y" {
		t.Errorf("dataDir = %s, %v", got, err)
	}
}
