package kek_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/kek"
	"github.com/skep-dev/skep/vault/kek/kektest"
)

const arn = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

func TestAWS(t *testing.T) {
	k := kektest.NewKMS(arn, "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	server := httptest.NewServer(k)
	defer server.Close()
	env := map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": k.Secret, "AWS_SESSION_TOKEN": "session", "AWS_ENDPOINT_URL_KMS": server.URL,
	}
	o := &kek.Opener{Env: func(n string) string { return env[n] }, Now: func() time.Time { return k.Now }}
	key, err := o.Open(t.Context(), "aws-kms://"+arn, nil, kek.Find)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("the key of a value \x00\xff")
	sealed, err := key.EncryptWithContext(t.Context(), text, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := key.DecryptWithContext(t.Context(), sealed, nil)
	if err != nil || string(got) != string(text) {
		t.Errorf("%q %v", got, err)
	}
	sealed[len(sealed)-1] ^= 1
	if _, err := key.DecryptWithContext(t.Context(), sealed, nil); err == nil || isOurs(err) {
		t.Errorf("a ciphertext that was changed: %v", err)
	}
	for kind, want := range map[string]agent.Kind{
		"AccessDeniedException": agent.Denied, "DisabledException": agent.Denied, "ThrottlingException": agent.Unavailable,
		"KMSInternalException": agent.Unavailable, "InvalidSignatureException": agent.Denied,
	} {
		k.Fail = kind
		if _, err := key.EncryptWithContext(t.Context(), text, nil); agent.KindOf(err) != want || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	k.Fail = ""
	env["AWS_SECRET_ACCESS_KEY"] = "another"
	if key, err = o.Open(t.Context(), "aws-kms://"+arn, nil, kek.Find); err != nil {
		t.Fatal(err)
	}
	if _, err := key.EncryptWithContext(t.Context(), text, nil); agent.KindOf(err) != agent.Denied || strings.Contains(err.Error(), "another") {
		t.Errorf("a wrong secret: %v", err)
	}
	env["AWS_ENDPOINT_URL_KMS"] = "nonsense"
	if _, err = o.Open(t.Context(), "aws-kms://"+arn, nil, kek.Find); agent.KindOf(err) != agent.Invalid {
		t.Errorf("%v", err)
	}
}
