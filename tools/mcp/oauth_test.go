package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/mcp"
)

// realm is a server of tools and its authorization server, on one origin. Each token is good until it is spent.
type realm struct {
	*httptest.Server
	mu     sync.Mutex
	tokens map[string]string // by token, whose it is
	codes  map[string]url.Values
	n      int
	forms  []url.Values // that the token endpoint got
}

func newRealm(t *testing.T) *realm {
	r := &realm{tokens: map[string]string{}, codes: map[string]url.Values{}}
	server := sdk.NewServer(&sdk.Implementation{Name: "realm", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "who"}, func(_ context.Context, req *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: r.whose(req.Extra.Header.Get("Authorization"))}}}, nil, nil
	})
	h := sdk.NewStreamableHTTPHandler(same(server), nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, q *http.Request) {
		if r.whose(q.Header.Get("Authorization")) == "" {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+r.URL+`/prm"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, q)
	})
	say := func(path string, v func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v())
		})
	}
	say("/prm", func() any {
		return map[string]any{"resource": r.URL + "/mcp", "authorization_servers": []string{r.URL}}
	})
	say("/.well-known/oauth-authorization-server", func() any {
		return map[string]any{
			"issuer": r.URL, "authorization_endpoint": r.URL + "/authorize", "token_endpoint": r.URL + "/token", "registration_endpoint": r.URL + "/register",
			"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
		}
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"client_id":"skep-1","token_endpoint_auth_method":"none"}`)
	})
	mux.HandleFunc("/token", r.token)
	r.Server = httptest.NewServer(mux)
	t.Cleanup(r.Close)
	t.Cleanup(r.CloseClientConnections)
	return r
}

func (r *realm) whose(header string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens[strings.TrimPrefix(header, "Bearer ")]
}

func (r *realm) token(w http.ResponseWriter, q *http.Request) {
	_ = q.ParseForm()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forms = append(r.forms, q.PostForm)
	w.Header().Set("Content-Type", "application/json")
	var who string
	switch q.PostForm.Get("grant_type") {
	case "authorization_code":
		who = r.codes[q.PostForm.Get("code")].Get("person")
	case "refresh_token":
		who = strings.TrimPrefix(q.PostForm.Get("refresh_token"), "refresh-")
	}
	if who == "" || who == "gone" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	r.n++
	token := fmt.Sprintf("token-%d-%s", r.n, who)
	r.tokens[token] = who
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600,"refresh_token":"refresh-%s"}`, token, who)
}

// spend makes all tokens worthless.
func (r *realm) spend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.tokens)
}

// agree is what a person's browser brings back from the page.
func (r *realm) agree(t *testing.T, page, person string) url.Values {
	t.Helper()
	u, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("resource") != r.URL+"/mcp" || q.Get("client_id") != "skep-1" || q.Get("redirect_uri") != "http://127.0.0.1:4747/oauth/callback" {
		t.Errorf("the page is %s", page)
	}
	code := "code-" + person
	r.mu.Lock()
	r.codes[code] = url.Values{"person": {person}}
	r.mu.Unlock()
	return url.Values{"state": {q.Get("state")}, "code": {code}, "iss": {r.URL}}
}

// kept is mcp.Tokens in memory.
type kept struct {
	mu sync.Mutex
	m  map[string][]byte
}

func (k *kept) name(app agent.App, server, user string) string {
	return string(app) + ":" + server + ":" + user
}

func (k *kept) Load(_ context.Context, app agent.App, server, user string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, ok := k.m[k.name(app, server, user)]
	if !ok {
		return nil, agent.Errorf(agent.NotFound, "there is none")
	}
	return b, nil
}

func (k *kept) Save(_ context.Context, app agent.App, server, user string, b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.m[k.name(app, server, user)] = b
	return nil
}

func (k *kept) Delete(_ context.Context, app agent.App, server, user string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.m, k.name(app, server, user))
	return nil
}

func (k *kept) DeleteAll(_ context.Context, app agent.App, server string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.m {
		if strings.HasPrefix(name, k.name(app, server, "")) {
			delete(k.m, name)
		}
	}
	return nil
}

func TestOAuth(t *testing.T) {
	r := newRealm(t)
	public, private := ways(t)
	store := &kept{m: map[string][]byte{}}
	oauth := mcp.NewOAuth(mcp.OAuthOptions{Tokens: store, Egress: public, Private: private})
	rec := agent.ToolServer{App: "default", Name: "it", Kind: agent.MCPHTTP, URL: r.URL + "/mcp", Private: true, OAuth: &agent.ToolOAuth{}}
	changed := make(chan struct{}, 100)
	s := open(t, rec, &mcp.Options{Egress: public, Private: private, OAuth: oauth}, func() { changed <- struct{}{} })
	const back = "http://127.0.0.1:4747/oauth/callback"
	begin := func(user string) string {
		t.Helper()
		page, until, err := oauth.Begin(t.Context(), rec, user, back)
		if err != nil || time.Until(until) > 10*time.Minute {
			t.Fatal(err, until)
		}
		return page
	}
	who := func(user string) (string, error) {
		res, err := s.Call(t.Context(), "who", nil, &tools.CallOptions{For: agent.ToolCall{User: user}})
		return string(res.Value), err
	}

	_, err := who("")
	wantError(t, err, agent.Denied, true, "wants Skep to be authorized by a person")
	if st := s.Status(); st.State != agent.ServerNeedsAuth || st.Hint != "skep tools authorize it" {
		t.Errorf("status: %+v", st)
	}
	page := begin("")
	for name, change := range map[string]func(url.Values){
		"another issuer": func(q url.Values) { q.Set("iss", "https://evil.example.com") },
		"no issuer":      func(q url.Values) { q.Del("iss") },
		"refused":        func(q url.Values) { q.Del("code"); q.Set("error", "access_denied") },
		"another state":  func(q url.Values) { q.Set("state", "made-up") },
	} {
		q := r.agree(t, begin(""), "ada")
		change(q)
		if _, err := oauth.Finish(t.Context(), q); agent.KindOf(err) != agent.Denied {
			t.Errorf("%s: %v", name, err)
		}
		if name == "another issuer" { // the state is spent
			q.Set("iss", r.URL)
			if _, err := oauth.Finish(t.Context(), q); agent.KindOf(err) != agent.Denied {
				t.Errorf("a state was good twice: %v", err)
			}
		}
	}
	if _, err := oauth.Finish(t.Context(), r.agree(t, page, "ada")); err != nil { // others go on
		t.Fatal(err)
	}
	<-changed
	if got, err := who(""); err != nil || got != `"ada"` {
		t.Fatalf("got %s, %v", got, err)
	}
	if got, err := who("TOKEN"); err != nil || got != `"ada"` { // who has none of their own shares
		t.Errorf("got %s, %v", got, err)
	}
	if done, err := oauth.Finish(t.Context(), r.agree(t, begin("TOKEN"), "bob")); err != nil || done.User != "TOKEN" {
		t.Fatal(done, err)
	}
	for user, want := range map[string]string{"": `"ada"`, "TOKEN": `"bob"`, "OTHER": `"ada"`} {
		if got, err := who(user); err != nil || got != want {
			t.Errorf("%q is %s, %v", user, got, err)
		}
	}
	r.spend()
	if got, err := who(""); err != nil || got != `"ada"` { // it was refreshed
		t.Errorf("got %s, %v", got, err)
	}
	if f := r.forms[len(r.forms)-1]; f.Get("grant_type") != "refresh_token" || f.Get("resource") != rec.URL || f.Get("client_id") != "skep-1" {
		t.Errorf("the refresh was %v", f)
	}

	// Another server under the same name is sent nothing.
	moved := rec
	moved.URL = r.URL + "/elsewhere"
	if st, err := oauth.State(t.Context(), moved, ""); err != nil || st.Authorized {
		t.Errorf("state: %+v, %v", st, err)
	}
	// Another process knows what this one was given.
	again := mcp.NewOAuth(mcp.OAuthOptions{Tokens: store, Egress: public, Private: private})
	if st, err := again.State(t.Context(), rec, "TOKEN"); err != nil || !st.Authorized || st.At.IsZero() {
		t.Errorf("state: %+v, %v", st, err)
	}
	if err := oauth.ForgetAll(t.Context(), rec); err != nil || len(store.m) > 0 {
		t.Errorf("%v, kept are %d", err, len(store.m))
	}
}

func TestOAuthRefused(t *testing.T) {
	r := newRealm(t)
	public, private := ways(t)
	oauth := mcp.NewOAuth(mcp.OAuthOptions{Tokens: &kept{m: map[string][]byte{}}, Egress: public, Private: private})
	rec := agent.ToolServer{App: "default", Name: "it", Kind: agent.MCPHTTP, URL: r.URL + "/mcp", Private: true}
	s := open(t, rec, &mcp.Options{Egress: public, Private: private, OAuth: oauth}, nil)
	_, err := s.Tools(t.Context())
	wantError(t, err, agent.Unavailable, true, "server it wants authorization")
	if hint := agent.AsError(err).Hint; hint != "skep tools authorize it" {
		t.Error(hint)
	}
	if _, _, err := oauth.Begin(t.Context(), rec, "", "http://x/"); agent.KindOf(err) != agent.Invalid {
		t.Error(err)
	}
	rec.OAuth, rec.Private = &agent.ToolOAuth{}, false
	if _, _, err := oauth.Begin(t.Context(), rec, "", "http://x/"); agent.KindOf(err) != agent.Denied {
		t.Error(err)
	}
}
