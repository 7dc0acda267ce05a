package inject

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

const clientSecret = "p%w:+ cs-9d81e2"

func oauthVault(t testing.TB, tokenURL string) vaultMap {
	v := vaultMap{}
	b, err := json.Marshal(map[string]string{"token_url": tokenURL, "client_id": "cl ient", "client_secret": clientSecret, "scope": "read write", "audience": "https://api"})
	if err != nil {
		t.Fatal(err)
	}
	v.put(t, "oauth", agent.SecretOAuth, string(b), "https://api.example.com header:authorization")
	return v
}

func (i *Injector) authorize(t testing.TB, ctx context.Context, text string) (string, *scrub.Scrubber, error) {
	t.Helper()
	r, target := ask{header: header("Authorization", text)}.request(t)
	s, err := i.Sign(ctx, new(user).use(), r, target)
	return r.Header.Get("Authorization"), s, err
}

func TestOAuth(t *testing.T) {
	for name, postOnly := range map[string]bool{"in the header": false, "in the body": true} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				user, pass, basic := r.BasicAuth()
				user, _ = url.QueryUnescape(user)
				pass, _ = url.QueryUnescape(pass)
				if !basic {
					user, pass = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
				}
				if basic == postOnly || user != "cl ient" || pass != clientSecret {
					w.WriteHeader(http.StatusBadRequest)
					fmt.Fprint(w, `{"error":"invalid_client"}`)
					return
				}
				if r.PostFormValue("grant_type") != "client_credentials" || r.PostFormValue("scope") != "read write" || r.PostFormValue("audience") != "https://api" {
					t.Errorf("form %v", r.PostForm)
				}
				fmt.Fprint(w, `{"access_token":"tok-5521-abc","token_type":"bearer","expires_in":3600}`)
			}))
			defer server.Close()
			i := New(oauthVault(t, server.URL+"/token"), &Options{Exchange: server.Client()})
			for _, text := range []string{"{{secret:oauth}}", "Bearer {{secret:oauth}}"} {
				got, s, err := i.authorize(t, context.Background(), text)
				if err != nil || got != "Bearer tok-5521-abc" {
					t.Fatalf("%q, %v", got, err)
				}
				echo := "tok-5521-abc " + clientSecret + " " + url.QueryEscape(clientSecret) + " cl ient"
				if got := s.String(echo); got != "[secret] [secret] [secret] cl ient" {
					t.Errorf("scrubbed %q", got)
				}
			}
			if want := map[bool]int32{false: 1, true: 2}[postOnly]; asked.Load() != want {
				t.Errorf("asked %d times, want %d", asked.Load(), want)
			}
		})
	}
}

// An exchange is a use of the secret, too, which is written down before it leaves.
func TestExchangeIsAudited(t *testing.T) {
	var asked int
	i := New(oauthVault(t, "https://id.example.com:8443/o/token"), &Options{Exchange: doerFunc(func(*http.Request) (*http.Response, error) {
		asked++
		return answer(200, `{"access_token":"tok-5521-abc","expires_in":3600}`), nil
	})})
	mute := &user{mute: errors.New("disk full")}
	r, target := ask{header: header("Authorization", "{{secret:oauth}}")}.request(t)
	_, err := i.Sign(t.Context(), Use{App: agent.DefaultApp, Agent: "helper", Allow: mute.use().Allow, Audit: func(ctx context.Context, s agent.SecretUse) error {
		if s.Place != agent.PlaceExchange {
			return nil
		}
		return mute.use().Audit(ctx, s)
	}}, r, target)
	if wantError(t, err, agent.Unavailable, "could not be written down"); asked != 0 {
		t.Error("the secret left, unwritten")
	}
	i = New(i.source, &Options{Exchange: i.exchange})
	u := new(user)
	for range 2 { // the second has the token
		r, target := ask{header: header("Authorization", "{{secret:oauth}}")}.request(t)
		if _, err := i.Sign(t.Context(), u.use(), r, target); err != nil {
			t.Fatal(err)
		}
	}
	api := agent.SecretUse{Secret: "oauth", Version: 3, Method: "GET", Host: "api.example.com", Path: "/v1", Place: "header:authorization", Agent: "helper", Run: "run1"}
	id := agent.SecretUse{Secret: "oauth", Version: 3, Method: "POST", Host: "id.example.com:8443", Path: "/o/token", Place: "exchange", Agent: "helper", Run: "run1"}
	if d := cmp.Diff([]agent.SecretUse{api, id, api}, u.audits); d != "" {
		t.Error(d)
	}
}

func TestGitHub(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
		claims, _ := base64.RawURLEncoding.DecodeString(parts[1])
		sig, _ := base64.RawURLEncoding.DecodeString(parts[2])
		sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		var c struct {
			Iss      string
			Iat, Exp int64
		}
		now := time.Now().Unix()
		if err := json.Unmarshal(claims, &c); err != nil || c.Iss != "1234" || c.Iat > now || c.Exp < now || c.Exp-c.Iat > 600 {
			t.Errorf("claims %s, %v", claims, err)
		}
		if err := rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], sig); err != nil {
			t.Error(err)
		}
		if r.Method != "POST" || r.URL.Path != "/api/v3/app/installations/99/access_tokens" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token":"ghs_16C7e42F292c6912E7","expires_at":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer server.Close()
	for kind, der := range map[string][]byte{"RSA PRIVATE KEY": x509.MarshalPKCS1PrivateKey(key), "PRIVATE KEY": pkcs8} {
		text := string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		v := vaultMap{}
		v.put(t, "app", agent.SecretGitHub, `{"app_id":1234,"installation_id":"99","private_key":`+string(quoted)+`,"api_url":"`+server.URL+`/api/v3"}`,
			"https://api.example.com header:authorization")
		i := New(v, &Options{Exchange: server.Client()})
		for in, want := range map[string]string{"{{secret:app}}": "Bearer ", "token {{secret:app}}": "token "} {
			got, s, err := i.authorize(t, context.Background(), in)
			if err != nil || got != want+"ghs_16C7e42F292c6912E7" {
				t.Fatalf("%q, %v", got, err)
			}
			line := strings.Split(text, "\n")[3]
			for _, leak := range []string{text, line, base64.StdEncoding.EncodeToString([]byte(line)), "ghs_16C7e42F292c6912E7"} {
				if out := s.String("<" + leak + ">"); strings.Contains(out, leak[4:20]) || !strings.HasPrefix(out, "<[secret]") {
					t.Errorf("scrubbed %q", out)
				}
			}
		}
	}
}

func TestTokenIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		i := New(oauthVault(t, "https://id.example.com/token"), &Options{Exchange: doerFunc(func(*http.Request) (*http.Response, error) {
			asked++
			return answer(200, fmt.Sprintf(`{"access_token":"tok-%d-abcdef","expires_in":600}`, asked)), nil
		})})
		want := func(n int) {
			t.Helper()
			got, _, err := i.authorize(t, t.Context(), "{{secret:oauth}}")
			if err != nil || got != fmt.Sprintf("Bearer tok-%d-abcdef", n) {
				t.Fatalf("%q, %v; want token %d", got, err, n)
			}
		}
		want(1)
		time.Sleep(9*time.Minute - 1)
		want(1)
		time.Sleep(time.Nanosecond)
		want(2)
		time.Sleep(youngest - 1)
		i.Rejected(agent.DefaultApp, "oauth") // too young
		i.Rejected(agent.DefaultApp, "never-used")
		want(2)
		time.Sleep(time.Nanosecond)
		i.Rejected(agent.DefaultApp, "oauth")
		want(3)
		m := i.source.(vaultMap)["default/oauth"]
		m.Value = []byte(strings.Replace(string(m.Value), "read write", "read", 1))
		i.source.(vaultMap)["default/oauth"] = m
		want(4)
	})
}

func TestTokenLife(t *testing.T) {
	now := time.Unix(1000, 0)
	for left, want := range map[time.Duration]time.Duration{time.Hour: 59 * time.Minute, 2 * time.Minute: time.Minute, time.Minute: 30 * time.Second, 0: 0} {
		if got := life(now, now.Add(left)).Sub(now); got != want {
			t.Errorf("a token that expires in %v is used for %v, want %v", left, got, want)
		}
	}
}

func TestOneExchangeAtATime(t *testing.T) {
	for name, fail := range map[string]bool{"it works": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				i := New(oauthVault(t, "https://id.example.com/token"), &Options{Exchange: doerFunc(func(*http.Request) (*http.Response, error) {
					asked.Add(1)
					time.Sleep(time.Second)
					if fail {
						return answer(503, ""), nil
					}
					return answer(200, `{"access_token":"tok-abcdef"}`), nil
				})})
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						if _, _, err := i.authorize(t, t.Context(), "{{secret:oauth}}"); (err != nil) != fail {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if asked.Load() != 1 {
					t.Errorf("asked %d times", asked.Load())
				}
				for _, later := range []time.Duration{pause - 1, 1} {
					time.Sleep(later)
					_, _, _ = i.authorize(t, t.Context(), "{{secret:oauth}}")
					if want := map[bool]int32{false: 1, true: 2}[fail && later == 1]; asked.Load() != want {
						t.Errorf("asked %d times, want %d", asked.Load(), want)
					}
				}
			})
		})
	}
}

// Who goes away while it exchanges must not take the others with it.
func TestCancelledExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(oauthVault(t, "https://id.example.com/token"), &Options{Exchange: doerFunc(func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(2 * time.Second):
				return answer(200, `{"access_token":"tok-abcdef"}`), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})})
		ctx, cancel := context.WithCancel(t.Context())
		waits, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, _, err := i.authorize(t, ctx, "{{secret:oauth}}"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if got, _, err := i.authorize(t, t.Context(), "{{secret:oauth}}"); err != nil || got != "Bearer tok-abcdef" {
				t.Errorf("%q, %v", got, err)
			}
		})
		all.Go(func() {
			if _, _, err := i.authorize(t, waits, "{{secret:oauth}}"); agent.KindOf(err) != agent.Cancelled {
				t.Error(err)
			}
		})
		synctest.Wait()
		stop()
		synctest.Wait()
		cancel()
		all.Wait()
	})
}

func TestExchangeFailures(t *testing.T) {
	echo := clientSecret + url.QueryEscape(clientSecret)
	for name, c := range map[string]struct {
		status int
		body   string
		err    error
		say    string
	}{
		"refused":              {401, `{"error":"invalid_client","error_description":"` + echo + `"}`, nil, "was refused by id.example.com with status 401, invalid_client"},
		"the secret as a code": {400, `{"error":"` + echo + `"}`, nil, "with status 400"},
		"a redirect":           {302, "", nil, "with status 302"},
		"no JSON":              {200, echo, nil, "without a token"},
		"no token":             {200, `{}`, nil, "without a token"},
		"a line break":         {200, `{"access_token":"a\r\nb"}`, nil, "without a token"},
		"a strange token":      {200, `{"access_token":"a","token_type":"mac"}`, nil, "no bearer token"},
		"too long":             {200, `{"access_token":"` + strings.Repeat("a", exchangeBytes) + `"}`, nil, "more than 64 KiB"},
		"no connection":        {0, "", errors.New("dial " + echo), "with id.example.com failed"},
	} {
		t.Run(name, func(t *testing.T) {
			i := New(oauthVault(t, "https://id.example.com/token"), &Options{Exchange: doerFunc(func(*http.Request) (*http.Response, error) {
				if c.err != nil {
					return nil, c.err
				}
				return answer(c.status, c.body), nil
			})})
			_, _, err := i.authorize(t, context.Background(), "{{secret:oauth}}")
			wantError(t, err, agent.Unavailable, c.say)
			if scrub.New([]byte(clientSecret)).In([]byte(err.Error())) {
				t.Errorf("the secret is in the error: %v", err)
			}
		})
	}
	t.Run("slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			i := New(oauthVault(t, "https://id.example.com/token"), &Options{Exchange: doerFunc(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})})
			begin := time.Now()
			_, _, err := i.authorize(t, t.Context(), "{{secret:oauth}}")
			wantError(t, err, agent.Unavailable, "failed")
			if time.Since(begin) != exchangeTime {
				t.Errorf("after %v", time.Since(begin))
			}
		})
	})
	t.Run("not set up", func(t *testing.T) {
		_, _, err := New(oauthVault(t, "https://id.example.com/token"), nil).authorize(t, context.Background(), "{{secret:oauth}}")
		wantError(t, err, agent.Unavailable, "is not set up here")
	})
}

func TestBrokenTypedSecrets(t *testing.T) {
	never := doerFunc(func(r *http.Request) (*http.Response, error) {
		t.Errorf("a request to %s", r.URL)
		return answer(500, ""), nil
	})
	const key = `"private_key":"x"`
	for value, c := range map[string]struct {
		kind agent.SecretKind
		say  string
	}{
		`[]`:                                     {agent.SecretOAuth, "is not the JSON"},
		`{"token_url":"https://id.example.com"}`: {agent.SecretOAuth, "no client_id"},
		`{"client_id":"a","client_secret":"b"}`:  {agent.SecretOAuth, "not a plain URL"},
		`{"client_id":"a","client_secret":"b","token_url":"http://id.example.com"}`:       {agent.SecretOAuth, "not https"},
		`{"client_id":"a","client_secret":"b","token_url":"https://u:p@id.example.com"}`:  {agent.SecretOAuth, "not a plain URL"},
		`{"client_id":"a","client_secret":"b","token_url":"file:///etc/passwd"}`:          {agent.SecretOAuth, "not a plain URL"},
		`{"installation_id":1,` + key + `}`:                                               {agent.SecretGitHub, "no app_id"},
		`{"app_id":1,"installation_id":"../../x",` + key + `}`:                            {agent.SecretGitHub, "no app_id or no installation_id"},
		`{"app_id":1,"installation_id":2,` + key + `}`:                                    {agent.SecretGitHub, "not an RSA key"},
		`{"app_id":1,"installation_id":2,"api_url":"http://api.example.com",` + key + `}`: {agent.SecretGitHub, "not https"},
		`{"access_key_id":"a"}`:                            {agent.SecretAWS, "no secret_access_key"},
		`{"access_key_id":"a\nb","secret_access_key":"c"}`: {agent.SecretAWS, "control character"},
	} {
		t.Run(value, func(t *testing.T) {
			v := vaultMap{}
			v.put(t, "x", c.kind, value, "https://api.example.com header:authorization")
			_, _, err := New(v, &Options{Exchange: never}).authorize(t, context.Background(), "{{secret:x}}")
			wantError(t, err, agent.Invalid, c.say)
		})
	}
}
