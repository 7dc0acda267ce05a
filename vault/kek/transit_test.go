package kek_test

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/kek"
	"github.com/skep-dev/skep/vault/kek/kektest"
)

func TestTransit(t *testing.T) {
	e := kektest.NewTransit("hvs.token")
	e.Namespace = "team"
	server := httptest.NewTLSServer(e)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"VAULT_TOKEN": e.Token, "VAULT_NAMESPACE": "team", "VAULT_CACERT": ca}
	host := strings.TrimPrefix(server.URL, "https://")
	source := "hcvault://" + host + "/sub/transit/keys/skep"
	o := &kek.Opener{Env: func(n string) string { return env[n] }, Hosts: []string{kek.Host(source)}}
	key, err := o.Open(t.Context(), source, nil, kek.Find)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("the key of a value \x00\xff")
	first, err := key.EncryptWithContext(t.Context(), text, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Rotate()
	second, err := key.EncryptWithContext(t.Context(), text, nil)
	if err != nil || !strings.HasPrefix(string(second), "vault:v2:") {
		t.Fatal(string(second), err)
	}
	for _, sealed := range [][]byte{first, second} {
		got, err := key.DecryptWithContext(t.Context(), sealed, nil)
		if err != nil || string(got) != string(text) {
			t.Errorf("%q %v", got, err)
		}
	}
	if _, err := key.DecryptWithContext(t.Context(), append(first[:len(first)-4:len(first)-4], "AAAA"...), nil); err == nil || isOurs(err) {
		t.Errorf("a ciphertext that was changed: %v", err)
	}

	for status, kind := range map[int]agent.Kind{403: agent.Denied, 429: agent.Unavailable, 500: agent.Unavailable, 503: agent.Unavailable} {
		e.SetStatus(status)
		if _, err := key.EncryptWithContext(t.Context(), text, nil); agent.KindOf(err) != kind || !strings.Contains(err.Error(), "as told") {
			t.Errorf("%d: %v", status, err)
		}
	}
	e.SetStatus(0)
	other := kektest.NewTransit("")
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	e.SetRedirect(elsewhere.URL)
	if _, err := key.EncryptWithContext(t.Context(), text, nil); agent.KindOf(err) != agent.Unavailable || other.Seen() != 0 {
		t.Errorf("a redirect: %v, followed %d times", err, other.Seen())
	}
	server.Close()
	if _, err := key.EncryptWithContext(t.Context(), text, nil); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("no server: %v", err)
	}
}

// The token goes to hosts that the operator named, and to VAULT_ADDR with the scheme that it has.
func TestTransitTokenGoesNowhereElse(t *testing.T) {
	e := kektest.NewTransit("hvs.token")
	server := httptest.NewServer(e)
	defer server.Close()
	env := map[string]string{"VAULT_TOKEN": e.Token}
	o := &kek.Opener{Env: func(n string) string { return env[n] }}
	source := "hcvault://" + strings.TrimPrefix(server.URL, "http://") + "/sub/transit/keys/skep"
	if _, err := o.Open(t.Context(), source, nil, kek.Make); agent.KindOf(err) != agent.Denied {
		t.Errorf("%v", err)
	}
	env["VAULT_ADDR"] = server.URL
	key, err := o.Open(t.Context(), source, nil, kek.Make)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := key.EncryptWithContext(t.Context(), []byte("text"), nil); err != nil || e.Seen() != 1 {
		t.Errorf("%v after %d requests", err, e.Seen())
	}
}

func isOurs(err error) bool { return agent.KindOf(err) != agent.Internal }
