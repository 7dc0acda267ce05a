package inject

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/skep-dev/skep/vault/scrub"
)

// unsaid is how long a token is used whose answer does not say when it expires.
const unsaid = 5 * time.Minute

type oauthFields struct {
	TokenURL     string `json:"token_url"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	Scope        string `json:"scope"`
	Audience     string `json:"audience"`
}

// openOAuth gets an access token by client credentials (RFC 6749, section 4.4).
func (i *Injector) openOAuth(ctx context.Context, use Use, o *opened) error {
	var f oauthFields
	if err := decode(o, &f); err != nil {
		return err
	}
	if f.ClientID == "" || f.ClientSecret == "" {
		return o.broken("has no client_id or no client_secret")
	}
	u, err := o.endpoint("token_url", f.TokenURL)
	if err != nil {
		return err
	}
	t, err := i.tokens.get(ctx, tokenKey{use.App, o.Secret.Name}, string(o.Value), func(ctx context.Context) (token, error) {
		return i.clientCredentials(ctx, use, o, u, f)
	})
	o.scheme, o.text, o.cleaner = "Bearer", t.text, t.cleaner
	return err
}

// clientCredentials asks with the client's name and secret in the header (section 2.3.1), and in the body of a second request
// where the server does not take them so.
func (i *Injector) clientCredentials(ctx context.Context, use Use, o *opened, u *url.URL, f oauthFields) (token, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if f.Scope != "" {
		form.Set("scope", f.Scope)
	}
	if f.Audience != "" {
		form.Set("audience", f.Audience)
	}
	user, pass := url.QueryEscape(f.ClientID), url.QueryEscape(f.ClientSecret)
	clean := scrub.New([]byte(f.ClientSecret), []byte(f.ClientID+":"+f.ClientSecret), []byte(user+":"+pass))

	post := func(basic bool) (int, []byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(form.Encode()))
		if err != nil {
			return 0, nil, o.broken("has a token_url that is not valid")
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "application/json")
		if basic {
			r.SetBasicAuth(user, pass)
		}
		return i.ask(ctx, use, o, r, clean)
	}
	now := time.Now()
	status, body, err := post(true)
	if err == nil && (status == http.StatusUnauthorized || status == http.StatusBadRequest && oauthError(body) == "invalid_client") {
		form.Set("client_id", f.ClientID)
		form.Set("client_secret", f.ClientSecret)
		status, body, err = post(false)
	}
	if err != nil {
		return token{}, err
	}
	if status != http.StatusOK {
		return token{}, o.refusedBy(u, status, oauthError(body))
	}
	var answer struct {
		AccessToken string  `json:"access_token"`
		TokenType   string  `json:"token_type"`
		ExpiresIn   float64 `json:"expires_in"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.AccessToken == "" || !isFieldValue(answer.AccessToken) {
		return token{}, o.failed("with "+u.Host+" got an answer without a token", "", nil)
	}
	if answer.TokenType != "" && !strings.EqualFold(answer.TokenType, "bearer") {
		return token{}, o.failed("with "+u.Host+" got a token that is no bearer token", "", nil)
	}
	expires := now.Add(unsaid)
	if s := min(answer.ExpiresIn, 86400); s > 0 {
		expires = now.Add(time.Duration(s * float64(time.Second)))
	}
	return token{
		text: answer.AccessToken, since: now, until: life(now, expires),
		cleaner: scrub.Merge(clean, scrub.New([]byte(answer.AccessToken))),
	}, nil
}

// oauthErrorRE matches the error codes that RFC 6749 and its extensions define, and nothing that could be a secret.
var oauthErrorRE = regexp.MustCompile(`^(invalid_(request|client|grant|scope|target|token)|unauthorized_client|unsupported_grant_type|access_denied|server_error|temporarily_unavailable)$`)

// oauthError returns the code of an error answer, or "".
func oauthError(body []byte) string {
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || !oauthErrorRE.MatchString(answer.Error) {
		return ""
	}
	return answer.Error
}
