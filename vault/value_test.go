package vault_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault"
)

// pemKeys are an RSA key in both forms that GitHub's has had, and a key of another kind.
var pemKeys = sync.OnceValue(func() (out [3]string) {
	r, _ := rsa.GenerateKey(rand.Reader, 2048)
	e, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	eight, _ := x509.MarshalPKCS8PrivateKey(r)
	other, _ := x509.MarshalPKCS8PrivateKey(e)
	for i, b := range []*pem.Block{
		{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(r)}, {Type: "PRIVATE KEY", Bytes: eight}, {Type: "PRIVATE KEY", Bytes: other},
	} {
		out[i] = string(pem.EncodeToMemory(b))
	}
	return out
})

func TestTypedValues(t *testing.T) {
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	keys := pemKeys()
	for _, tt := range []struct {
		kind agent.SecretKind
		in   string
		want string // or what the error says, after a !
	}{
		{agent.SecretBasic, `{"password":"pässword","username":"u"}`, `{"username":"u","password":"pässword"}`},
		{agent.SecretBasic, ` {"username" : "u" , "password" : "123456" } ` + "\n", `{"username":"u","password":"123456"}`},
		{agent.SecretBasic, `{"username":"u","password":1234567}`, `{"username":"u","password":"1234567"}`},
		{agent.SecretBasic, `{"username":"u","password":"12345"}`, "!fewer than 6"},
		{agent.SecretBasic, `{"username":"u:v","password":"123456"}`, "!username has a colon"},
		{agent.SecretBasic, `{"username":"u\n","password":"123456"}`, "!username has a control character"},
		{agent.SecretBasic, `{"username":"","password":"123456"}`, "!username is missing or empty"},
		{agent.SecretBasic, `{"username":"u"}`, "!password is missing"},
		{agent.SecretBasic, `{"username":"u","password":"123456","token":"x"}`, "!a member that is not one of them"},
		{agent.SecretBasic, `{"username":"u","username":"v","password":"123456"}`, "!username twice"},
		{agent.SecretBasic, `{"username":"u","password":["123456"]}`, "!password is not a string"},
		{agent.SecretBasic, `{"username":"u","password":{"a":1}}`, "!password is not a string"},
		{agent.SecretBasic, `{"username":"u","password":null}`, "!password is not a string"},
		{agent.SecretBasic, `{"username":"u","password":1.5}`, "!password is not a string"},
		{agent.SecretBasic, `{"username":"u","password":"123456"} {}`, "!something after"},
		{agent.SecretBasic, `{"username":"u","password":"123456"`, "!not valid JSON at byte"},
		{agent.SecretBasic, `["u","123456"]`, "!not a JSON object"},
		{agent.SecretBasic, "{\"username\":\"\xff\"}", "!not UTF-8"},
		{agent.SecretBasic, `u:123456`, "!it is a JSON object with username, password"},
		{agent.SecretAWS, `{"access_key_id":"AKIDEXAMPLE","secret_access_key":"wJalrXUtn/+="}`, `{"access_key_id":"AKIDEXAMPLE","secret_access_key":"wJalrXUtn/+="}`},
		{agent.SecretAWS, `{"access_key_id":"AKIDEXAMPLE","secret_access_key":"a secret"}`, "!secret_access_key has a space"},
		{agent.SecretAWS, `{"access_key_id":"AKIDEXAMPLE","secret_access_key":"abcdefg","region":""}`, "!region is missing or empty"},
		{agent.SecretAWS, `{"secret_access_key":"abcdefg"}`, "!access_key_id is missing"},
		{agent.SecretGitHub, `{"app_id":12,"installation_id":"34","private_key":` + quoted(keys[0]) + `}`, `{"app_id":"12","installation_id":"34","private_key":` + quoted(keys[0]) + `}`},
		{agent.SecretGitHub, `{"app_id":"12","installation_id":"34","private_key":` + quoted(keys[1]) + `,"api_url":"https://git.example/api/v3"}`,
			`{"app_id":"12","installation_id":"34","private_key":` + quoted(keys[1]) + `,"api_url":"https://git.example/api/v3"}`},
		{agent.SecretGitHub, `{"app_id":"12","installation_id":"34","private_key":` + quoted(keys[2]) + `}`, "!private_key is not an RSA"},
		{agent.SecretGitHub, `{"app_id":"12","installation_id":"34","private_key":"abcdefgh"}`, "!private_key is not in PEM"},
		{agent.SecretGitHub, `{"app_id":"12","installation_id":"34","private_key":` + quoted(keys[1]) + `,"api_url":"ftp://x"}`, "!api_url is not the address"},
		{agent.SecretOAuth, `{"token_url":"https://a.example/token","client_id":"id","client_secret":"secret","scope":"a b"}`,
			`{"token_url":"https://a.example/token","client_id":"id","client_secret":"secret","scope":"a b"}`},
		{agent.SecretOAuth, `{"token_url":"https://u:p@a.example/token","client_id":"id","client_secret":"secret"}`, "!token_url is not the address"},
		{agent.SecretOAuth, `{"token_url":"https://a.example/token","client_id":"id","client_secret":"short"}`, "!client_secret has 5 bytes"},
		{agent.SecretValue, "any \x00 bytes", "any \x00 bytes"},
		{agent.SecretOAuth + 1, "123456", "!no such kind"},
		{agent.UnknownSecret, "123456", "!no such kind"},
	} {
		got, err := vault.CheckValue(tt.kind, []byte(tt.in))
		if says, bad := strings.CutPrefix(tt.want, "!"); bad {
			if err == nil {
				t.Errorf("%s %s is taken as %s", tt.kind, tt.in, got)
				continue
			}
			wantKind(t, err, agent.Invalid, says)
		} else if err != nil || string(got) != tt.want {
			t.Errorf("%s %s: %s %v\nwant %s", tt.kind, tt.in, got, err, tt.want)
		}
	}
}

// FuzzCheckValue holds that what is taken is stable and within bounds, and that no error holds a run of the value's own text.
func FuzzCheckValue(f *testing.F) {
	const marker = "zqxj" // in no message of ours
	f.Add(uint8(2), []byte(`{"zqxj":"zqxj","zqxj":zqxj`))
	f.Add(uint8(2), []byte(`{"username":"zqxj:zqxj","password":"zqxj"}`))
	f.Add(uint8(3), []byte(`{"access_key_id":"zqxj zqxj","secret_access_key":["zqxjzqxj"]}`))
	f.Add(uint8(4), []byte(`{"app_id":"zqxj","installation_id":"zqxj","private_key":"zqxjzqxj","api_url":"zqxj"}`))
	f.Add(uint8(5), []byte(`{"token_url":"zqxj://[zqxj","client_id":"zqxj","client_secret":"zqxjzqxj"}`))
	f.Add(uint8(2), []byte(`{"username":"u","password":"123456"}`))
	f.Add(uint8(3), []byte(`{"access_key_id":"AKIDEXAMPLE","secret_access_key":"wJalrXUtn/+=","region":"eu"}`))
	f.Add(uint8(4), []byte(`{"app_id":12,"installation_id":"34","private_key":"-----BEGIN"}`))
	f.Add(uint8(5), []byte(`{"token_url":"https://a.example/token","client_id":"id","client_secret":"secret","scope":"a b"}`))
	f.Add(uint8(5), []byte(`{"token_url":"https://%zz","client_id":"\ud800","client_secret":9007199254740993}`))
	f.Add(uint8(1), []byte("value"))
	f.Fuzz(func(t *testing.T, kind uint8, value []byte) {
		k := agent.SecretKind(kind % 7)
		in := bytes.Clone(value)
		got, err := vault.CheckValue(k, in)
		if !bytes.Equal(in, value) {
			t.Fatal("the value was changed")
		}
		if err != nil {
			if text := err.Error() + agent.AsError(err).Hint; got != nil || strings.Contains(text, marker) {
				t.Fatalf("%q beside the error %s", got, text)
			}
			return
		}
		if len(got) < vault.MinValue || len(got) > vault.MaxValue {
			t.Fatalf("%d bytes are taken", len(got))
		}
		if k != agent.SecretValue {
			var members map[string]string
			if err := json.Unmarshal(got, &members); err != nil {
				t.Fatalf("what is kept is not an object of strings: %v", err)
			}
		}
		again, err := vault.CheckValue(k, got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("not stable: %q, then %q %v", got, again, err)
		}
	})
}
