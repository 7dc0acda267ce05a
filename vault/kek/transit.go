package kek

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// transit is a key in the transit engine of HashiCorp Vault or OpenBao, which never gives it out
// (https://developer.hashicorp.com/vault/api-docs/secret/transit).
type transit struct {
	host, mount, name string

	base, token, namespace string
	client                 *http.Client
}

func parseTransit(source string) (transit, error) {
	bad := &agent.Error{
		Kind: agent.Invalid, Msg: "vault key: " + cut(source) + " is not the address of a transit key",
		Hint: "write hcvault://HOST[:PORT]/transit/keys/NAME, with the token in VAULT_TOKEN",
	}
	u, err := url.Parse(source)
	if err != nil || u.Scheme != "hcvault" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" {
		if u != nil && u.User != nil {
			bad.Msg = "vault key: an address with a name or a password in it is not taken"
		}
		return transit{}, bad
	}
	mount, name, found := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/keys/")
	if !found || !isPath(mount) || !isPath(name) || strings.Contains(name, "/") {
		return transit{}, bad
	}
	return transit{host: strings.ToLower(u.Host), mount: mount, name: name}, nil
}

// isPath allows what needs no escaping and goes nowhere else.
func isPath(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool {
			return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			return false
		}
	}
	return true
}

func (o *Opener) openTransit(source string) (*Key, error) {
	t, err := parseTransit(source)
	if err != nil {
		return nil, err
	}
	t.base = "https://" + t.host
	known := slices.Contains(o.Hosts, t.host)
	if addr, err := url.Parse(o.env("VAULT_ADDR")); err == nil && strings.ToLower(addr.Host) == t.host {
		t.base, known = addr.Scheme+"://"+t.host, true
	}
	if !known {
		return nil, &agent.Error{
			Kind: agent.Denied, Msg: "vault key: the server was not told to send its token to " + t.host,
			Hint: "start it with VAULT_ADDR=https://" + t.host + ", or name the key with --vault-key or --vault-old-key",
		}
	}
	if t.token = o.env("VAULT_TOKEN"); t.token == "" {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "vault key: " + source + " needs a token", Hint: "put it in VAULT_TOKEN"}
	}
	t.namespace = o.env("VAULT_NAMESPACE")
	if t.client, err = o.client(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(t.namespace + "\x00" + t.host + "/" + t.mount + "/" + t.name))
	return &Key{ID: "hcvault-" + hex.EncodeToString(sum[:8]), Source: source, aead: &t}, nil
}

func (t *transit) EncryptWithContext(ctx context.Context, text, _ []byte) ([]byte, error) {
	var out struct{ Ciphertext string }
	if err := t.do(ctx, "encrypt", map[string][]byte{"plaintext": text}, &out); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(out.Ciphertext, "vault:") {
		return nil, agent.Errorf(agent.Unavailable, "vault key: %s answered without a ciphertext", t.host)
	}
	return []byte(out.Ciphertext), nil
}

func (t *transit) DecryptWithContext(ctx context.Context, sealed, _ []byte) ([]byte, error) {
	var out struct{ Plaintext []byte }
	err := t.do(ctx, "decrypt", map[string]string{"ciphertext": string(sealed)}, &out)
	return out.Plaintext, err
}

func (t *transit) do(ctx context.Context, what string, in, data any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	defer clear(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+"/v1/"+t.mount+"/"+what+"/"+t.name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Vault-Request", "true")
	req.Header.Set("X-Vault-Token", t.token)
	if t.namespace != "" {
		req.Header.Set("X-Vault-Namespace", t.namespace)
	}
	status, answer, err := send(t.client, req)
	if err != nil {
		return err
	}
	defer clear(answer)
	if status == http.StatusOK {
		if err := json.Unmarshal(answer, &struct{ Data any }{data}); err != nil {
			return agent.Errorf(agent.Unavailable, "vault key: %s answered with something else than JSON", t.host)
		}
		return nil
	}
	var why struct{ Errors []string }
	_ = json.Unmarshal(answer, &why) // what is not the engine's own error says nothing
	return refused(t.host, status, strings.Join(why.Errors, "; "))
}

// refused is the error for an answer other than 200.
func refused(host string, status int, why string) error {
	err := fmt.Errorf("HTTP %d: %.300s", status, why)
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return &agent.Error{Kind: agent.Denied, Msg: "vault key: " + host + " refused", Err: err, Hint: "see that the credentials for it are right, and may use that key"}
	case status == http.StatusTooManyRequests || status >= 500 || status/100 == 3:
		return agent.Wrap(agent.Unavailable, err, "vault key: "+host+" cannot serve")
	}
	return err
}
