package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/vault"
)

// openVault returns a vault whose key ends with the test, and whose changes go to the audit log.
func openVault(t testing.TB, st *store.Store, rt *runtime.Runtime) *vault.Vault {
	t.Helper()
	v, err := vault.Open(context.Background(), st, &vault.Options{Key: "memory", Audit: func(ctx context.Context, app agent.App, c agent.Change) error {
		b, err := json.Marshal(c)
		if err != nil {
			return err
		}
		return rt.Audit(ctx, app, agent.Event{Kind: agent.EventChanged, Data: b})
	}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const canary = "canary-6c1f0e9b-value"

func TestSecrets(t *testing.T) {
	var log logBuffer
	r := start(t, &Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	var bodies strings.Builder
	do := func(method, target, body string, status int) reply {
		t.Helper()
		res := r.do(method, target, body)
		bodies.Write(res.body)
		if res.StatusCode != status {
			t.Fatalf("%s %s: %s %s", method, target, res.Status, res.body)
		}
		return res
	}
	do("PUT", "/v1/secrets/gh", `{"value":"`+canary+`","description":"d","bindings":["https://api.github.com/** header:Authorization"]}`, 200)
	do("PUT", "/v1/secrets/gh", `{"value":"`+canary+`2"}`, 200)
	do("PUT", "/v1/secrets/login", `{"kind":"basic","value":{"username":"u","password":"`+canary+`"}}`, 200)
	do("PUT", "/v1/secrets/login", `{"value":{"username":"v","password":"`+canary+`"}}`, 200)
	do("PATCH", "/v1/secrets/gh", `{"bindings":["GET https://other.example query:key"]}`, 200)
	do("POST", "/v1/secrets/gh/rollback", `{"version":1}`, 200)
	do("GET", "/v1/secrets", "", 200)

	for _, tt := range []struct {
		method, target, body string
		status               int
		says                 string
	}{
		{"PUT", "/v1/secrets/bad", `{"value":""}`, 400, "the value is empty"},
		{"PUT", "/v1/secrets/bad", `{"value":"five5"}`, 400, "fewer than 6"},
		{"PUT", "/v1/secrets/bad", `{"value":{"a":"` + canary + `"}}`, 400, `\"value\" must be a string`},
		{"PUT", "/v1/secrets/bad", `{"value":null}`, 400, ""},
		{"PUT", "/v1/secrets/bad", `{"kind":"aws","value":"` + canary + `"}`, 400, "is not a JSON object"},
		{"PUT", "/v1/secrets/bad", `{"kind":"oauth","value":{"` + canary + `":1}}`, 400, "not one of them"},
		{"PUT", "/v1/secrets/bad", `{"kind":"jwt","value":"` + canary + `"}`, 400, "jwt"},
		{"PUT", "/v1/secrets/bad", `{"value":"` + canary + `","bindings":["nowhere"]}`, 400, "target"},
		{"PUT", "/v1/secrets/bad", `{"kind":"basic","value":{"username":"u","password":"` + canary + `"},"bindings":["https://a.example query:q"]}`, 400, "Authorization header alone"},
		{"PUT", "/v1/secrets/Bad%20Name", `{"value":"` + canary + `"}`, 400, "name"},
		{"PUT", "/v1/secrets/bad", canary, 400, "not valid JSON"},
		{"PUT", "/v1/secrets/bad", `{"value":"` + canary, 400, "not valid JSON"},
		{"PUT", "/v1/secrets/bad", `{"value":"` + strings.Repeat("x", vault.MaxValue+1) + `"}`, 400, "more than 65536"},
		{"GET", "/v1/secrets/bad", "", 404, "no secret"},
		{"PATCH", "/v1/secrets/bad", `{"description":"x"}`, 404, "no secret"},
		{"DELETE", "/v1/secrets/bad", "", 404, "no secret"},
		{"POST", "/v1/secrets/gh/rollback", `{"version":9}`, 404, "kept are 1, 2"},
		{"POST", "/v1/secrets/gh/rollback", `{}`, 400, "version"},
		{"POST", "/v1/secrets/rewrap", `{"key":"memory"}`, 400, "vault key"},
		{"POST", "/v1/secrets/rewrap", `{"key":"s3://x"}`, 400, "no such kind"},
		{"POST", "/v1/secrets/gh", `{}`, 405, ""},
		{"GET", "/v1/secrets/gh/value", "", 404, ""},
	} {
		res := do(tt.method, tt.target, tt.body, tt.status)
		if !strings.Contains(string(res.body), tt.says) {
			t.Errorf("%s %s %.80s does not say %q: %s", tt.method, tt.target, tt.body, tt.says, res.body)
		}
	}

	next := "file:" + filepath.Join(t.TempDir(), "k")
	done, err := r.c.RewrapSecrets(t.Context(), next)
	if err != nil || done.Secrets != 2 || done.Versions != 4 || done.Source != next {
		t.Errorf("%+v %v", done, err)
	}
	s, err := r.c.Secret(t.Context(), "gh")
	if err != nil || s.Version != 1 || len(s.Versions) != 2 || s.Description != "d" || s.Bindings[0].String() != "GET https://other.example query:key" {
		t.Errorf("%+v %v", s, err)
	}
	m, err := r.s.o.Vault.Material(t.Context(), agent.DefaultApp, "gh")
	if err != nil || string(m.Value) != canary {
		t.Errorf("%v %v", m, err)
	}
	do("DELETE", "/v1/secrets/login", "", 204)

	// Every change is in the audit log, with the request, and a value is nowhere.
	audit := do("GET", "/v1/audit", "", 200)
	for _, action := range []string{"secret.set", "secret.bind", "secret.rollback", "secret.rewrap", "secret.delete"} {
		if !strings.Contains(string(audit.body), action) {
			t.Errorf("the audit log has no %s", action)
		}
	}
	for where, text := range map[string]string{"an answer": bodies.String(), "the log": log.String(), "the audit log": string(audit.body)} {
		for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary))[:20], fmt.Sprintf("%x", canary)} {
			if strings.Contains(text, form) {
				t.Errorf("%s holds the value as %s", where, form)
			}
		}
	}
}

// A developer sees what secrets there are and changes none, and an app's secrets are its own.
func TestSecretsNeedAnOwner(t *testing.T) {
	r := start(t, nil)
	ctx := t.Context()
	if _, err := r.c.SetSecret(ctx, "gh", client.NewSecret{Value: json.RawMessage(`"` + canary + `"`)}); err != nil {
		t.Fatal(err)
	}
	dev, err := r.c.CreateToken(ctx, client.NewToken{Name: "dev", Role: agent.Developer})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, target, body string
		status               int
	}{
		{"GET", "/v1/secrets", "", 200},
		{"GET", "/v1/secrets/gh", "", 200},
		{"PUT", "/v1/secrets/gh", `{"value":"another value"}`, 403},
		{"PATCH", "/v1/secrets/gh", `{"bindings":["https://evil.example"]}`, 403},
		{"DELETE", "/v1/secrets/gh", "", 403},
		{"POST", "/v1/secrets/gh/rollback", `{"version":1}`, 403},
		{"POST", "/v1/secrets/rewrap", `{"key":"file:/tmp/k"}`, 403},
	} {
		if res := r.do(tt.method, tt.target, tt.body, "Authorization", "Bearer "+dev.Secret); res.StatusCode != tt.status {
			t.Errorf("%s %s: %s %s", tt.method, tt.target, res.Status, res.body)
		}
	}
	if _, err := r.c.CreateApp(ctx, client.NewApp{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	shop, err := r.c.CreateToken(ctx, client.NewToken{Name: "shop", App: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	mine := "Bearer " + shop.Secret
	if res := r.do("GET", "/v1/secrets/gh", "", "Authorization", mine); res.StatusCode != 404 {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if res := r.do("POST", "/v1/secrets/rewrap", `{"key":"file:/tmp/k"}`, "Authorization", mine); res.StatusCode != 403 {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if res := r.do("PUT", "/v1/secrets/gh", `{"value":"the shop's own"}`, "Authorization", mine); res.StatusCode != 200 {
		t.Errorf("%s %s", res.Status, res.body)
	}
	m, err := r.s.o.Vault.Material(ctx, agent.DefaultApp, "gh")
	if err != nil || string(m.Value) != canary {
		t.Errorf("%v %v", m, err)
	}
}
