//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestPeerIsPinned(t *testing.T) {
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	read(t, "peer/package.json", &manifest)
	if got := manifest.Dependencies["workerd"]; got != peerVersion {
		t.Errorf("package.json asks for workerd %s, the table says %s", got, peerVersion)
	}
	others := map[string]string{"node_modules/@cloudflare/codemode": manifest.Dependencies["@cloudflare/codemode"], "node_modules/acorn": "8.19.0", "node_modules/@types/json-schema": "7.0.15"}
	var lock struct {
		Packages map[string]struct{ Version, Integrity, Resolved string } `json:"packages"`
	}
	read(t, "peer/package-lock.json", &lock)
	for name, p := range lock.Packages {
		if name == "" {
			continue
		}
		want := cmp.Or(others[name], peerVersion)
		if p.Version != want || p.Integrity == "" || p.Resolved != "" {
			t.Errorf("%s: version %q, integrity %q, resolved %q: want version %s, a checksum and no registry", name, p.Version, p.Integrity, p.Resolved, want)
		}
		delete(others, name)
	}
	if len(others) > 0 {
		t.Errorf("the lock file lacks %v", others)
	}
}

func TestWasmtimeIsPinned(t *testing.T) {
	mod, err := os.ReadFile("peer/wasmtime/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, version, ok := strings.Cut(string(mod), "/wasmtime-go/v44 v")
	if major, _, _ := strings.Cut(version, "."); !ok || wasmtimeName != "wasmtime "+major+", fuel" {
		t.Errorf("the rows say %s, go.mod asks for %s", wasmtimeName, version)
	}
}

func read(t *testing.T, file string, v any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestBothSidesGetTheSameText(t *testing.T) {
	for _, p := range programs() {
		if strings.Count(p.ours, "ok:%d") != 1 || strings.Count(p.theirs, "ok:%d") != 1 || strings.Count(p.bare, "ok:%d") != 1 {
			t.Errorf("%s: the serial number must stand in each text once", p.name)
		}
		if strings.ContainsAny(p.ours+p.theirs+p.bare, "«»") {
			t.Errorf("%s: marks are left", p.name)
		}
		if types := strings.Contains(p.ours, ": number"); types != (p.language == "ts") {
			t.Errorf("%s: types in it: %t", p.name, types)
		}
		if strings.Contains(p.theirs+p.bare, ": number") {
			t.Errorf("%s: a peer is sent types", p.name)
		}
	}
	js, ts := programs()[1], programs()[2]
	if js.theirs != ts.theirs {
		t.Error("the peer gets different programs for JS and for TS")
	}
}

func TestChoose(t *testing.T) {
	ps, err := choose("p7, P1")
	if err != nil || len(ps) != 2 || ps[0].id != "P7" || ps[1].id != "P1" {
		t.Errorf("got %v, %v", ps, err)
	}
	if _, err := choose("P99"); err == nil {
		t.Error("an unknown figure was taken")
	}
}
