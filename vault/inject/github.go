package inject

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/skep-dev/skep/vault/scrub"
)

// shortestLine is the fewest bytes of a line of a key that is scrubbed by itself.
const shortestLine = 17

// id is a number that may be written as a string.
type id string

var idRE = regexp.MustCompile(`^"?([A-Za-z0-9._-]{1,64})"?$`)

func (v *id) UnmarshalJSON(b []byte) error {
	if m := idRE.FindSubmatch(b); m != nil {
		*v = id(m[1])
	}
	return nil
}

type githubFields struct {
	AppID          id     `json:"app_id"`
	InstallationID id     `json:"installation_id"`
	PrivateKey     string `json:"private_key"`
	APIURL         string `json:"api_url"`
}

// openGitHub gets an installation token of a GitHub App.
func (i *Injector) openGitHub(ctx context.Context, use Use, o *opened) error {
	var f githubFields
	if err := decode(o, &f); err != nil {
		return err
	}
	if f.AppID == "" || f.InstallationID == "" {
		return o.broken("has no app_id or no installation_id")
	}
	if f.APIURL == "" {
		f.APIURL = "https://api.github.com"
	}
	u, err := o.endpoint("api_url", f.APIURL)
	if err != nil {
		return err
	}
	t, err := i.tokens.get(ctx, tokenKey{use.App, o.Secret.Name}, string(o.Value), func(ctx context.Context) (token, error) {
		return i.installationToken(ctx, use, o, u, f)
	})
	o.scheme, o.text, o.cleaner = "Bearer", t.text, t.cleaner
	return err
}

func (i *Injector) installationToken(ctx context.Context, use Use, o *opened, u *url.URL, f githubFields) (token, error) {
	key := parseRSA(f.PrivateKey)
	if key == nil {
		return token{}, o.broken("has a private_key that is not an RSA key in PEM, of at least 2048 bits")
	}
	now := time.Now()
	jwt, err := appToken(key, string(f.AppID), now)
	if err != nil {
		return token{}, o.broken("has a private_key that does not sign")
	}
	secret := [][]byte{[]byte(f.PrivateKey), []byte(jwt)}
	for line := range bytes.Lines([]byte(f.PrivateKey)) {
		if line = bytes.TrimSpace(line); len(line) >= shortestLine && !bytes.HasPrefix(line, []byte("-----")) {
			secret = append(secret, line)
		}
	}
	clean := scrub.New(secret...)

	at := u.JoinPath("app", "installations", string(f.InstallationID), "access_tokens")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return token{}, o.broken("has an api_url that is not valid")
	}
	r.Header.Set("Authorization", "Bearer "+jwt)
	r.Header.Set("Accept", "application/vnd.github+json")
	r.Header.Set("User-Agent", "skep")
	status, body, err := i.ask(ctx, use, o, r, clean)
	if err != nil {
		return token{}, err
	}
	if status != http.StatusCreated {
		return token{}, o.refusedBy(u, status, "")
	}
	var answer struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Token == "" || !isFieldValue(answer.Token) {
		return token{}, o.failed("with "+u.Host+" got an answer without a token", "", nil)
	}
	return token{
		text: answer.Token, since: now, until: life(now, answer.Expires),
		cleaner: scrub.Merge(clean, scrub.New([]byte(answer.Token))),
	}, nil
}

// refusedBy is the error for a server that answers, and gives no token.
func (o *opened) refusedBy(u *url.URL, status int, code string) error {
	why := "was refused by " + u.Host + " with status " + strconv.Itoa(status)
	if code != "" {
		why += ", " + code
	}
	return o.failed(why, "", nil)
}

// appToken returns the JWT that a GitHub App shows itself by (RFC 7519, RS256). It begins a minute ago, for clocks that differ.
func appToken(key *rsa.PrivateKey, app string, now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"iss": app, "iat": now.Add(-time.Minute).Unix(), "exp": now.Add(9 * time.Minute).Unix()})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding.EncodeToString
	text := enc([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return text + "." + enc(sig), nil
}

// parseRSA reads a private key in PKCS #1 or #8. It returns nil when it is none, or too short.
func parseRSA(text string) *rsa.PrivateKey {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		other, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil
		}
		key, _ = other.(*rsa.PrivateKey)
	}
	if key == nil || key.N.BitLen() < 2048 {
		return nil
	}
	return key
}
